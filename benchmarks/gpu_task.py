"""The GPU benchmark's model and data as a Peerloom task."""

from torch import nn

from benchmarks.gpu_model import BATCH, LEARNING_RATE, make_model, make_pool
from benchmarks.wide_task import PoolTask, Repeated
from peerloom.worker.task import Samples, Split


class Sequences(PoolTask):
    """`steps` steps of 512 samples in one epoch, so that no evaluation stands between them."""

    epochs = 1
    batch_size = BATCH
    learning_rate = LEARNING_RATE
    autocast = "bf16"

    def __init__(self, steps: str) -> None:
        self.samples = int(steps) * BATCH

    def model(self) -> nn.Module:
        return make_model()

    def data(self) -> tuple[Samples, Samples]:
        inputs, targets = make_pool()
        return Repeated(inputs, targets, self.samples), Split(inputs[:BATCH], targets[:BATCH])
