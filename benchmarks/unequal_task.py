"""Training on unequal machines, of two kinds: samples that cost waiting, and samples that cost computing."""

import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.recovery import small_model
from benchmarks.wide_task import PoolTask, Repeated
from peerloom.worker.task import Samples, Split, Task

SAMPLE_S, SLOWDOWN = 0.003, 3.0
# Steps of a sixth of a second and more: five processes on two cores cost each other some 10 ms of each.
FEATURES, CLASSES, WAITING_BATCH = 16, 4, 240
# Steps of a fifth of a second: exchanging the 1 MB of gradients takes parts of cores some 20 ms of each.
COMPUTING_BATCH = 12288


def make_model() -> nn.Module:
    """So small that it costs no time beside the waiting."""
    return nn.Linear(FEATURES, CLASSES)


def make_data(samples: int) -> tuple[Tensor, Tensor]:
    """Inputs [samples, 16] and targets [samples]."""
    chance = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, FEATURES, generator=chance)
    return inputs, torch.randint(CLASSES, (samples,), generator=chance)


class Waiting(Task):
    """`steps` steps of 240 samples in one epoch; a sample takes 3 ms, or 9 ms in the process that the file
    `slow` names by its id.
    """

    epochs = 1
    batch_size = WAITING_BATCH

    def __init__(self, steps: str, slow: str) -> None:
        self._samples, self._slow = int(steps) * WAITING_BATCH, Path(slow)

    def model(self) -> nn.Module:
        return make_model()

    def data(self) -> tuple[Samples, Samples]:
        inputs, targets = make_data(self._samples)
        return Split(inputs, targets), Split(inputs[:8], targets[:8])

    def batch(self, split: Samples, indices: Tensor) -> tuple[Tensor, Tensor]:
        if len(split) == self._samples:
            is_slow = self._slow.read_text() == str(os.getpid())
            time.sleep(SAMPLE_S * (SLOWDOWN if is_slow else 1.0) * len(indices))
        return super().batch(split, indices)


class Computing(PoolTask):
    """`steps` steps of 12,288 samples in one epoch through a perceptron of 270 thousand parameters."""

    epochs = 1
    batch_size = COMPUTING_BATCH
    learning_rate = small_model.LEARNING_RATE

    def __init__(self, steps: str) -> None:
        self._samples = int(steps) * COMPUTING_BATCH

    def model(self) -> nn.Module:
        return small_model.make_model()

    def data(self) -> tuple[Samples, Samples]:
        inputs, targets = small_model.make_pool()
        return Repeated(inputs, targets, self._samples), Split(inputs[:8], targets[:8])
