"""Digits with dropout, and digits whose workers wait, or walk, until a file is there."""

import threading
from pathlib import Path

from torch import Tensor, nn

from peerloom.worker.task import Samples
from peerloom.worker.tasks.digits import Digits

FREE_BATCHES = 30
WALKING_S = 0.9  # a batch
_LOOKS_EACH_S = 0.02


class Dropping(Digits):
    """Chance within the layers of both stages."""

    def model(self) -> nn.Module:
        first, *others = super().model()
        return nn.Sequential(first, nn.Dropout(0.3), *others[:-1], nn.Dropout(0.3), others[-1])


class Held(Digits):
    """A process that has loaded so many batches waits for `gate` to exist before the next."""

    def __init__(self, gate: str) -> None:
        super().__init__()
        self._gate, self._loaded = Path(gate), 0

    def batch(self, split: Samples, indices: Tensor) -> tuple[Tensor, Tensor]:
        self._loaded += 1
        while self._loaded > FREE_BATCHES and not self._gate.exists():
            threading.Event().wait(_LOOKS_EACH_S)
        return super().batch(split, indices)


class Walking(Digits):
    """Batches take long until `gate` exists: the job is at work then, whatever was to happen meanwhile."""

    def __init__(self, gate: str) -> None:
        super().__init__()
        self._gate = Path(gate)

    def batch(self, split: Samples, indices: Tensor) -> tuple[Tensor, Tensor]:
        if not self._gate.exists():
            threading.Event().wait(WALKING_S)
        return super().batch(split, indices)
