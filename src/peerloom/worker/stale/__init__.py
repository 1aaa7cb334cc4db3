"""Steps of gradients that may be older than the parameters they move: SSP, ASP and backup workers.

A batch is cut into equal parts, which are handed out in turn: who has computed one begins the next, with the
newest parameters that it has, while steps are committed beside it (`part_computer`). All workers hear of all
parts in the same rows, and so hand out, take, and refuse alike (`handing_out`). `stale_step` puts this
together; what of an epoch has counted is a part of the job's state (`stale_training`).
"""
