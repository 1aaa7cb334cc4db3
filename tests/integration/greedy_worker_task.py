"""Digits; a process whose id stands in a file, or `EVERYBODY`, asks for more memory than any machine has."""

import os
from pathlib import Path

import torch
from torch import Tensor

from peerloom.worker.task import Samples
from peerloom.worker.tasks.digits import Digits

EVERYBODY = "everybody"


class GreedyWorker(Digits):
    """`greedy` is that file, which may be written while the others work."""

    def __init__(self, greedy: str) -> None:
        super().__init__()
        self._greedy = Path(greedy)

    def batch(self, split: Samples, indices: Tensor) -> tuple[Tensor, Tensor]:
        if {str(os.getpid()), EVERYBODY} & set(self._greedy.read_text().split()):
            torch.empty(1 << 60)
        return super().batch(split, indices)
