"""The elastic loop: a training script keeps its own `for`, and what it does is trained as a task is.

The script and the training are two threads of one process, of which one works at a time (`conversation`):
the training gives the script its part of a batch and gets the loss. All the rest, exchange, commit, joining
and losses, is what tasks have, made of what the script handed over (`script_task`, `script_training`).
In a job the training is the worker's main thread (`hosting`), outside one a thread of its own
(`elastic_run`).
"""
