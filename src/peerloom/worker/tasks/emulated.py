"""A model whose computing is waited for: real parameters, gradients, optimiser and traffic, emulated compute.

Many workers on few cores would otherwise compute by turns, and nothing would be learned of how computing and
communication fit together. A layer waits as long as a device of the given speed needs for it, then computes
itself on very few numbers, which takes next to no time.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from peerloom.worker.task import Split, Task
from peerloom.worker.tasks.built_in import BUILT_IN
from peerloom.worker.tasks.numbers import number, whole

CLASSES = 10
FORWARD_PART = 1 / 3  # a backward pass has two products of matrices for each one of the forward pass
_ENTRY = BUILT_IN["emulated"]
_TEST_SAMPLES = 8
Sleep = Callable[[float], None]


class Emulated(Task):
    """Classes of random inputs by `layers` square layers of about `parameters` in all, and a small last one.

    A sample takes `sample_ms` milliseconds of a forward and a backward pass, `samples` are an epoch's. Of a
    dense layer a device does 6 operations a parameter and sample, so one that does R operations a second
    takes 6 * parameters / R seconds a sample.
    """

    epochs = _ENTRY.epochs
    batch_size = _ENTRY.batch_size
    learning_rate = _ENTRY.learning_rate

    def __init__(
        self, parameters: str = "1000000", layers: str = "10", sample_ms: str = "10", samples: str = "512"
    ) -> None:
        self.layers = whole("layers", layers, 1, 1000)
        self.parameters = whole("parameters", parameters, self.layers * CLASSES, 2_000_000_000)
        self.sample_s = number("sample_ms", sample_ms, 0, 3_600_000) / 1000
        self.samples = whole("samples", samples, 1, 1_000_000)

    @property
    def width(self) -> int:
        """Inputs and outputs of each layer."""
        return max(CLASSES, round(math.sqrt(self.parameters / self.layers)))

    def model(self) -> nn.Module:
        """Linear layers, each of which waits its part of a sample's time, then the last, which doesn't."""
        each_s = self.sample_s / self.layers
        paced = [Paced(nn.Linear(self.width, self.width), each_s) for _ in range(self.layers)]
        return nn.Sequential(*paced, nn.Linear(self.width, CLASSES))

    def data(self) -> tuple[Split, Split]:
        """Random inputs [n, width] and classes [n], the same everywhere."""
        return self._split(self.samples, 1), self._split(_TEST_SAMPLES, 2)

    def _split(self, count: int, seed: int) -> Split:
        chance = torch.Generator().manual_seed(seed)
        inputs = torch.randn(count, self.width, generator=chance)
        return Split(inputs, torch.randint(CLASSES, (count,), generator=chance))


class Paced(nn.Module):
    """A layer that takes `sample_s` seconds a sample for both passes, beside what it takes anyway."""

    def __init__(self, layer: nn.Module, sample_s: float, sleep: Sleep = time.sleep) -> None:
        super().__init__()
        self.layer = layer
        self.sample_s = sample_s
        self._sleep = sleep

    def forward(self, inputs: Tensor) -> Tensor:
        pass_s = self.sample_s * len(inputs)
        self._sleep(pass_s * FORWARD_PART)
        outputs: Tensor = self.layer(inputs)
        return _WaitBackward.apply(outputs, pass_s * (1 - FORWARD_PART), self._sleep)  # type: ignore[no-untyped-call,no-any-return]  # torch's own


class _WaitBackward(torch.autograd.Function):
    """Gradients pass as they are, after a wait: the layer before it gives its own only then."""

    @staticmethod
    def forward(context: Any, outputs: Tensor, seconds: float, sleep: Sleep) -> Tensor:
        context.wait = lambda: sleep(seconds)
        return outputs.view_as(outputs)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        context.wait()
        return gradients[0], None, None
