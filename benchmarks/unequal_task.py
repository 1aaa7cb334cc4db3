"""Training whose samples cost waiting in place of computing, so that many workers on few cores don't disturb
each other: the first process of a job that gets to it is three times as slow as the others."""

import os
import time

import torch
from torch import Tensor, nn

from peerloom.worker.task import Samples, Split, Task

SAMPLE_S, SLOWDOWN = 0.003, 3.0
# Steps of a sixth of a second and more: five processes on two cores cost each other some 10 ms of each.
FEATURES, CLASSES, BATCH = 16, 4, 240


def is_slow(claim: str) -> bool:
    """Whether this process is the first to claim the file; never with an empty name."""
    if not claim:
        return False
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def make_model() -> nn.Module:
    """So small that it costs no time beside the waiting."""
    return nn.Linear(FEATURES, CLASSES)


def make_data(samples: int) -> tuple[Tensor, Tensor]:
    """Inputs [samples, 16] and targets [samples]."""
    chance = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, FEATURES, generator=chance)
    return inputs, torch.randint(CLASSES, (samples,), generator=chance)


class Waiting(Task):
    """`steps` steps of 240 samples in one epoch; a sample takes 3 ms, or 9 ms where `claim` is held."""

    epochs = 1
    batch_size = BATCH

    def __init__(self, steps: str, claim: str = "") -> None:
        self._samples = int(steps) * BATCH
        self._sample_s = SAMPLE_S * (SLOWDOWN if is_slow(claim) else 1.0)

    def model(self) -> nn.Module:
        return make_model()

    def data(self) -> tuple[Samples, Samples]:
        inputs, targets = make_data(self._samples)
        return Split(inputs, targets), Split(inputs[:8], targets[:8])

    def batch(self, split: Samples, indices: Tensor) -> tuple[Tensor, Tensor]:
        if len(split) == self._samples:
            time.sleep(self._sample_s * len(indices))
        return super().batch(split, indices)
