"""All ranks tell each other a few numbers."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from peerloom.worker.group import Group


def exchange(group: Group, own: Sequence[float], kind: torch.dtype) -> list[list[float]]:
    """What each rank said, by rank: the same on all. Each says as many numbers, exact in `kind`.

    Raises RuntimeError when a peer is lost.
    """
    rows = torch.zeros(group.world_size, len(own), dtype=kind)
    rows[group.rank] = torch.tensor(own, dtype=kind)
    if group.world_size > 1:
        rows = rows.to(group.device)
        group.wait(dist.all_reduce(rows, async_op=True))  # each row has one summand that isn't zero
    said: list[list[float]] = rows.tolist()
    return said
