"""Digits that cost waiting: the process whose id stands in a file is three times as slow as the others."""

import os
import threading
from pathlib import Path

from torch import Tensor

from peerloom.worker.task import Samples
from peerloom.worker.tasks.digits import Digits

SAMPLE_S, SLOWDOWN = 0.001, 3


class SlowWorker(Digits):
    """`slow` is that file, which may be written while the others work."""

    def __init__(self, slow: str) -> None:
        super().__init__()
        self._slow = Path(slow)

    def batch(self, split: Samples, indices: Tensor) -> tuple[Tensor, Tensor]:
        is_slow = self._slow.read_text() == str(os.getpid())
        threading.Event().wait(SAMPLE_S * (SLOWDOWN if is_slow else 1) * len(indices))
        return super().batch(split, indices)
