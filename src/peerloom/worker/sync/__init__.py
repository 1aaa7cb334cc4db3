"""How local gradients become one update: one small interface, one module a way.

The loss that a worker differentiates is the sum over its own samples divided by the whole batch, so the
gradient of the unsplit batch is the plain SUM of the workers' gradients, however unequal their shares.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

TensorFuture = torch.futures.Future[torch.Tensor | str]


@dataclass
class SyncTraffic:
    """What communication costs, summed up since the start: bytes, and seconds that computing did not hide."""

    bytes: int = 0
    exposed_s: float = 0.0


class Collectives(Protocol):
    """Makes waits for collectives end with their group, at once."""

    def follow(self, work: dist.Work | None) -> TensorFuture:
        """A future of a collective's tensor, or of the reason why there is none."""

    def result(self, future: TensorFuture) -> torch.Tensor:
        """Waits for the tensor. Raises RuntimeError when a peer is lost, or the group's own error."""


class Synchroniser(Protocol):
    """One way to turn local gradients into one update."""

    traffic: SyncTraffic

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The model's outputs for this worker's share of the batch."""

    def backward(self, loss: torch.Tensor) -> float:
        """Leaves the whole batch's gradient in `.grad`; returns the whole batch's mean loss.

        `loss` is this worker's part of the batch's mean loss. Raises what `Collectives.result` does.
        """

    def close(self) -> None:
        """Takes its hooks off the model."""


def synchroniser(model: torch.nn.Module, world_size: int, collectives: Collectives) -> Synchroniser:
    """The synchronisation for a group of this size."""
    from peerloom.worker.sync.all_reduce import AllReduce
    from peerloom.worker.sync.alone import Alone

    return AllReduce(model, collectives) if world_size > 1 else Alone(model)
