"""The benchmark's model and data as a Peerloom task."""

from torch import Tensor, nn

from benchmarks.wide_model import BATCH, LEARNING_RATE, make_model, make_pool
from peerloom.worker.task import Samples, Split, Task


class PoolTask(Task):
    """Trains on a `Repeated` pool, whose batches are taken at once."""

    def batch(self, split: Samples, indices: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(split, Repeated):
            places = indices % len(split.inputs)
            return split.inputs[places], split.targets[places]
        return super().batch(split, indices)


class Wide(PoolTask):
    """`steps` steps of 512 samples in one epoch, so that no evaluation stands between them."""

    epochs = 1
    batch_size = BATCH
    learning_rate = LEARNING_RATE

    def __init__(self, steps: str) -> None:
        self.samples = int(steps) * BATCH

    def model(self) -> nn.Module:
        return make_model()

    def pool(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets that the samples are taken from, again and again."""
        return make_pool()

    def data(self) -> tuple[Samples, Samples]:
        inputs, targets = self.pool()
        return Repeated(inputs, targets, self.samples), Split(inputs[:BATCH], targets[:BATCH])


class Repeated:
    """The pool as a longer set, without the memory."""

    def __init__(self, inputs: Tensor, targets: Tensor, samples: int) -> None:
        self.inputs, self.targets, self._samples = inputs, targets, samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        place = index % len(self.inputs)
        return self.inputs[place], self.targets[place]
