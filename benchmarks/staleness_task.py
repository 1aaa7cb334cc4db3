"""Real digits whose samples cost waiting, so that workers on few cores don't disturb each other: a process
whose id stands in a file is three times as slow as the others."""

import os
import time
from pathlib import Path

from torch import Tensor

from benchmarks.unequal_task import SLOWDOWN
from peerloom.worker.task import Samples
from peerloom.worker.tasks.digits import Digits

SAMPLE_S = 0.001


class SlowDigits(Digits):
    """A training sample takes 1 ms, or 3 ms in processes that the file `slow` names; test samples none."""

    def __init__(self, slow: str) -> None:
        super().__init__()
        self._slow = Path(slow)
        self._test_samples = len(self.data()[1])

    def batch(self, split: Samples, indices: Tensor) -> tuple[Tensor, Tensor]:
        if len(split) != self._test_samples:
            is_slow = str(os.getpid()) in self._slow.read_text().split()
            time.sleep(SAMPLE_S * (SLOWDOWN if is_slow else 1.0) * len(indices))
        return super().batch(split, indices)
