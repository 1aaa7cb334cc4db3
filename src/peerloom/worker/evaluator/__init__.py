"""Runs a finished model over its task's test set for the trainer, which knows no torch.

`evaluation_order` is what the trainer says and hears; `__main__` is a process that imports everything once
and forks a child for each order; `scoring` is what the child does once it has confined itself.
"""
