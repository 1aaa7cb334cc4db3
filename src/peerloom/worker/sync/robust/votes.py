"""What counts as a vote: the mean gradient of one owner's samples, over all of that owner's workers.

A worker's gradient is the sum over its samples divided by the whole batch, so those of one owner are added
up and scaled by batch / samples of the owner. Votes weigh the same, however many nodes, workers or samples
an owner has: many names would otherwise be many votes, and a worker that tells of a high speed gets more
samples. The price is that an owner with few samples has a noisier vote of the same weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from peerloom.worker.updating.precision import summable


@dataclass(frozen=True)
class Votes:
    """`values` [m, d], float32 or wider: a row for each owner, with their `samples`; `refused` ranks."""

    values: torch.Tensor
    owners: tuple[str, ...]
    samples: tuple[int, ...]
    refused: tuple[int, ...]


def voters(owners: Sequence[str], counts: Sequence[int]) -> list[str]:
    """The owners who have samples in this step, in the order of their first ranks."""
    return list(dict.fromkeys(owner for owner, count in zip(owners, counts, strict=True) if count))


def collect(gradients: torch.Tensor, owners: Sequence[str], counts: Sequence[int]) -> Votes:
    """The votes in the gradients [n, d] of the ranks, whose samples and owners are `counts` and `owners`.

    A rank is refused when a value isn't finite, or all are so large that their sum isn't: it is left out of
    its owner's vote. Who had no samples isn't heard.
    """
    wide = summable(gradients)
    finite = wide.sum(1).isfinite().tolist()
    heard = [rank for rank, count in enumerate(counts) if count]
    kept = [rank for rank in heard if finite[rank]]
    names = tuple(dict.fromkeys(owners[rank] for rank in kept))
    rows, samples = [], []
    for owner in names:
        own = [rank for rank in kept if owners[rank] == owner]
        total = sum(counts[rank] for rank in own)
        added = wide[own[0]] if len(own) == 1 else wide[own].sum(0)
        rows.append(added * (sum(counts) / total))
        samples.append(total)
    values = torch.stack(rows) if rows else wide.new_zeros(0, wide.shape[1])
    return Votes(values, names, tuple(samples), tuple(rank for rank in heard if not finite[rank]))
