"""What a model's layers cost: their parameters, and the times of their passes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.errors import InvalidArgumentError

BACKWARD_PART = 2 / 3  # of a step: a backward pass computes two products for each of the forward pass
MOST_LAYERS = 10_000


@dataclass(frozen=True)
class LayerTimes:
    """A layer (or a tensor of it): its parameters, and seconds forward and backward on a rank's share."""

    name: str
    parameters: int
    forward_s: float
    backward_s: float

    def __post_init__(self) -> None:
        if self.parameters < 0:
            raise InvalidArgumentError.of_field(f"parameters of {self.name}", self.parameters, "at least 0")
        for time_s in (self.forward_s, self.backward_s):
            if not 0 <= time_s < math.inf:
                raise InvalidArgumentError.of_field(f"a pass of {self.name}", time_s, "at least 0 s")


def even_layers(parameters: int, compute_s: float, layers: int) -> tuple[LayerTimes, ...]:
    """Equal layers, with `parameters` and a step of `compute_s` in all. Raises InvalidArgumentError."""
    if not 1 <= layers <= min(parameters, MOST_LAYERS):
        limit = f"from 1 to {MOST_LAYERS:,}, with a parameter each at least"
        raise InvalidArgumentError.of_field("layers", layers, limit)
    return layers_of_work("layer", _shared(parameters, layers), [1.0] * layers, compute_s)


def layers_of_work(
    name: str | Sequence[str], parameters: Sequence[int], work: Sequence[float], compute_s: float
) -> tuple[LayerTimes, ...]:
    """Layers whose time is their part of all `work`; a third of it forward."""
    whole = math.fsum(work)
    names = [f"{name} {number}" for number in range(len(work))] if isinstance(name, str) else name
    return tuple(
        LayerTimes(
            one,
            count,
            (1 - BACKWARD_PART) * compute_s * part / whole,
            BACKWARD_PART * compute_s * part / whole,
        )
        for one, count, part in zip(names, parameters, work, strict=True)
    )


def _shared(count: int, parts: int) -> list[int]:
    return [count // parts + (number < count % parts) for number in range(parts)]
