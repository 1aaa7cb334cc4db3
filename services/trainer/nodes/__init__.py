"""Where a job's workers run.

`recruiting` asks nodes for slots, `offers` judges their answers, `replacing` does both for one job as long as
it lives, `evidence` is what was seen of them, `logs` what their workers printed.
"""
