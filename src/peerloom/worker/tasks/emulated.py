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
from torch.func import functional_call

from peerloom.errors import InvalidArgumentError
from peerloom.worker.task import Split, Task
from peerloom.worker.tasks.built_in import BUILT_IN
from peerloom.worker.tasks.layer_shapes import SHAPES, LayerShape
from peerloom.worker.tasks.numbers import number, whole
from peerloom.worker.tasks.punctual_waits import PunctualWaits

CLASSES = 10
FORWARD_PART = 1 / 3  # beside it there are products for the gradients of the inputs, and of the weights
_ENTRY = BUILT_IN["emulated"]
_TEST_SAMPLES = 8
Sleep = Callable[[float], None]


class Emulated(Task):
    """Classes of random inputs by `layers` square layers of about `parameters` in all, and a small last one.

    With `like` the layers are those of another task's network instead, each convolution at one position. A
    sample takes `sample_ms` milliseconds of a forward and a backward pass, spread over the layers by their
    operations, and a step `step_ms` beside its samples, spread evenly; `samples` are an epoch's. At most
    `micro_batch` samples are computed at once, so that a wait is as long as in a pipeline. Of a dense
    layer a device does 6 operations a parameter and sample, so one that does R operations a second takes
    6 * parameters / R seconds a sample.
    """

    epochs = _ENTRY.epochs
    batch_size = _ENTRY.batch_size
    learning_rate = _ENTRY.learning_rate

    def __init__(
        self,
        parameters: str = "",
        layers: str = "",
        sample_ms: str = "10",
        samples: str = "512",
        like: str = "",
        step_ms: str = "0",
        micro_batch: str = "",
    ) -> None:
        if like and like not in SHAPES:
            raise InvalidArgumentError.of_field("like", like[:40], f"one of {', '.join(SHAPES)}")
        if like and (parameters or layers):
            raise InvalidArgumentError(f"like={like} says which layers: leave parameters and layers out.")
        self.sample_s = number("sample_ms", sample_ms, 0, 3_600_000) / 1000
        self.step_s = number("step_ms", step_ms, 0, 3_600_000) / 1000
        self.samples = whole("samples", samples, 1, 1_000_000)
        self.micro_batch = whole("micro_batch", micro_batch, 1, 1_000_000) if micro_batch else None
        self.shapes = SHAPES[like] if like else _equal_layers(parameters or "1000000", layers or "10")

    def model(self) -> nn.Module:
        """Linear layers, each of which waits its part of a step's time; the last of equal ones doesn't."""
        operations = sum(shape.operations for shape in self.shapes)
        modules, waits = list[nn.Module](), PunctualWaits()
        width = self.shapes[0].inputs
        for shape in self.shapes:
            modules += [Repeated(shape.inputs // width)] if shape.inputs > width else []
            sample_s = self.sample_s * shape.operations / operations
            layer = nn.Linear(shape.inputs, shape.outputs)
            modules.append(Paced(layer, sample_s, waits.wait, self.step_s / len(self.shapes)))
            width = shape.outputs
        if width != CLASSES:
            modules.append(nn.Linear(width, CLASSES))
        return nn.Sequential(*modules)

    def data(self) -> tuple[Split, Split]:
        """Random inputs [n, those of the first layer] and classes [n], the same everywhere."""
        return self._split(self.samples, 1), self._split(_TEST_SAMPLES, 2)

    def _split(self, count: int, seed: int) -> Split:
        chance = torch.Generator().manual_seed(seed)
        inputs = torch.randn(count, self.shapes[0].inputs, generator=chance)
        return Split(inputs, torch.randint(CLASSES, (count,), generator=chance))


def _equal_layers(parameters: str, layers: str) -> tuple[LayerShape, ...]:
    count = whole("layers", layers, 1, 1000)
    total = whole("parameters", parameters, count * CLASSES, 2_000_000_000)
    width = max(CLASSES, round(math.sqrt(total / count)))
    return (LayerShape(width, width),) * count


class Repeated(nn.Module):
    """The features so many times: the positions that a convolution or the layer after it would see."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.repeat(1, self.times)


class Paced(nn.Module):
    """A layer that takes `sample_s` seconds a sample and `step_s` a step for both passes, beside its own.

    A third is for the forward pass, one for the gradient of the inputs, and one for that of the weights.
    """

    def __init__(
        self, layer: nn.Module, sample_s: float, sleep: Sleep = time.sleep, step_s: float = 0.0
    ) -> None:
        super().__init__()
        self.layer = layer
        self.sample_s, self.step_s = sample_s, step_s
        self._sleep = sleep

    def forward(self, inputs: Tensor) -> Tensor:
        pass_s = (self.step_s + self.sample_s * len(inputs)) * FORWARD_PART
        self._sleep(pass_s)
        name, weight = next(self.layer.named_parameters())
        # The gradient of the weight waits by itself: a pass that gives that of the inputs alone doesn't wait.
        weights = {name: self._waiting(weight, pass_s)}
        return self._waiting(functional_call(self.layer, weights, (inputs,)), pass_s)

    def _waiting(self, tensor: Tensor, seconds: float) -> Tensor:
        return _WaitBackward.apply(tensor, seconds, self._sleep)  # type: ignore[no-untyped-call,no-any-return]  # torch's own


class _WaitBackward(torch.autograd.Function):
    """Gradients pass as they are, after a wait: what depends on them comes only then."""

    @staticmethod
    def forward(context: Any, outputs: Tensor, seconds: float, sleep: Sleep) -> Tensor:
        context.wait = lambda: sleep(seconds)
        return outputs.view_as(outputs)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        context.wait()
        return gradients[0], None, None
