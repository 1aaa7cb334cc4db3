"""The elastic loop: a training script keeps its own `for`, and what it does is trained as a task is.

The script and the training are two threads of one process, of which one works at a time (`conversation`):
the training gives the script its part of a batch and gets the loss. All the rest, exchange, commit, joining
and losses, is what tasks have, made of what the script handed over (`script_task`, `script_training`).
Of a step the workers agree on more than on a task's (`agreement`): that nobody has left the loop, that the
same optimisers step (`losses`), and on the epoch's order (`epoch_order`). What a `DataLoader` says is taken
apart (`samples`), and its processes read the shares to come (`read_ahead`).

In a job the training is the worker's main thread (`hosting`), outside one a thread of its own
(`elastic_run`).
"""
