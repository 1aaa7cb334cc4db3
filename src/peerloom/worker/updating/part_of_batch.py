"""An adaptive optimiser's step by a part of a batch, as long as one by the whole batch.

Adam and its kind divide a gradient by its own size, which is mostly noise: that of a n-th part of a batch is
the square root of n times as large. So where each rank steps by its part, and the mean of all is taken later,
that mean goes 1 / sqrt(n) as far as a step by the whole batch, with the same noise. What is done here makes
up for it: an optimiser is given its gradients as large as the batch's, so that the squares that it remembers
are those of the batch, and takes the rate as many times larger. SGD's mean needs none of this. Source: the
square-root rule of Malladi et al. (NeurIPS 2022, arXiv 2205.10287). Where gradients are mostly signal, steps
get longer than the batch's instead, up to 1 / sqrt(part) times.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch.optim import Adagrad, Adam, Adamax, NAdam, Optimizer, RAdam, RMSprop

ADAPTIVE = (Adagrad, Adam, Adamax, NAdam, RAdam, RMSprop)  # AdamW is an Adam


@contextmanager
def as_by_whole_batch(optimisers: Sequence[Optimizer], part: float) -> Iterator[None]:
    """While it lasts, these step by a `part` of a batch, above 0 and at most 1, as by all of it."""
    scale = math.sqrt(part)
    adaptive = [each for each in optimisers if isinstance(each, ADAPTIVE)] if part < 1 else []
    groups = [group for each in adaptive for group in each.param_groups]
    kept = [(group["lr"], group["weight_decay"]) for group in groups]
    try:
        for group, (rate, decay) in zip(groups, kept, strict=True):
            # Decay comes with the gradient, or with the rate: it is to be as long as before.
            group["lr"], group["weight_decay"] = rate / scale, decay * scale
            if gradients := [each.grad for each in group["params"] if each.grad is not None]:
                torch._foreach_mul_(gradients, scale)
        yield
    finally:
        for group, (rate, decay) in zip(groups, kept, strict=True):
            group["lr"], group["weight_decay"] = rate, decay
