"""The digits, with workers of chosen ranks that push the parameters the other way, ten times as hard."""

import torch.distributed as dist
from torch import Tensor

from peerloom.worker.tasks.digits import Digits

STRENGTH = -10.0


class Lying(Digits):
    """`liars` are ranks with commas between them."""

    def __init__(self, liars: str) -> None:
        self._liars = [int(rank) for rank in liars.split(",")]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        honest = super().loss(outputs, targets)
        lies = dist.is_initialized() and dist.get_rank() in self._liars
        return STRENGTH * honest if lies else honest
