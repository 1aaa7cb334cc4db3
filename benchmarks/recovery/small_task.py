"""The benchmark's model and data as a Peerloom task that doesn't end by itself."""

from torch import nn

from benchmarks.recovery.small_model import BATCH, LEARNING_RATE, make_model, make_pool
from benchmarks.wide_task import PoolTask, Repeated
from peerloom.worker.task import Samples, Split

STEPS_PER_EPOCH = 2000


class Small(PoolTask):
    """Epochs of 2,000 steps, so that an evaluation seldom stands between them."""

    epochs = 1_000_000
    batch_size = BATCH
    learning_rate = LEARNING_RATE
    samples = STEPS_PER_EPOCH * BATCH

    def model(self) -> nn.Module:
        return make_model()

    def data(self) -> tuple[Samples, Samples]:
        inputs, targets = make_pool()
        return Repeated(inputs, targets, self.samples), Split(inputs[:BATCH], targets[:BATCH])


class Short(Small):
    """So many steps in one epoch, so that no evaluation stands between them."""

    epochs = 1

    def __init__(self, steps: str) -> None:
        self.samples = int(steps) * BATCH


class Large(Small):
    """The same model with ten times the batch, so that a step takes longer."""

    batch_size = 10 * BATCH
