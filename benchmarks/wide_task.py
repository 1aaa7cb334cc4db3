"""The benchmark's model and data as a Peerloom task."""

from torch import Tensor, nn

from benchmarks.wide_model import BATCH, LEARNING_RATE, POOL, make_model, make_pool
from peerloom.worker.task import Samples, Split, Task


class Wide(Task):
    """`steps` steps of 512 samples in one epoch, so that no evaluation stands between them."""

    epochs = 1
    batch_size = BATCH
    learning_rate = LEARNING_RATE

    def __init__(self, steps: str) -> None:
        self.samples = int(steps) * BATCH

    def model(self) -> nn.Module:
        return make_model()

    def data(self) -> tuple[Samples, Samples]:
        inputs, targets = make_pool()
        return Repeated(inputs, targets, self.samples), Split(inputs[:BATCH], targets[:BATCH])

    def batch(self, split: Samples, indices: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(split, Repeated):
            return split.inputs[indices % POOL], split.targets[indices % POOL]
        return super().batch(split, indices)


class Repeated:
    """The pool as a longer set, without the memory."""

    def __init__(self, inputs: Tensor, targets: Tensor, samples: int) -> None:
        self.inputs, self.targets, self._samples = inputs, targets, samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index % POOL], self.targets[index % POOL]
