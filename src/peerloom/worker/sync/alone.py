"""A group of one: nothing to synchronise."""

from collections.abc import Sequence

import torch

from peerloom.worker.batches import Nest, call_model
from peerloom.worker.sync import SyncTraffic


class Alone:
    """Trains without peers, and so without DDP's copies."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.traffic = SyncTraffic()
        self._model = model

    def forward(self, inputs: Nest) -> Nest:
        return call_model(self._model, inputs)

    def backward(self, loss: torch.Tensor, counts: Sequence[int]) -> float:
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return float(loss.detach())

    def close(self) -> None:
        pass
