"""The digits, with workers of chosen ranks that push the parameters the other way, ten times as hard.

The ranks are those of the first generation: in a smaller group they stand for others.
"""

import torch.distributed as dist
from torch import Tensor

from peerloom.worker.tasks.digits import Digits

STRENGTH = -10.0


class Lying(Digits):
    """`liars` are ranks with commas between them."""

    def __init__(self, liars: str) -> None:
        self._liars = [int(rank) for rank in liars.split(",")]
        self._first_size = 0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        honest = super().loss(outputs, targets)
        if not dist.is_initialized():
            return honest
        self._first_size = self._first_size or dist.get_world_size()
        lies = dist.get_world_size() == self._first_size and dist.get_rank() in self._liars
        return STRENGTH * honest if lies else honest
