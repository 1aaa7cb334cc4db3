"""When each layer's gradient is there: the times of a model's passes, from the training's own steps."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from peerloom.v1.trainer_pb2 import MeasuredLayer

WARM_UP_STEPS, STEPS = 1, 5
LONG_STEPS, LONG_S = 2, 1.0  # so many are enough where they take so long: long ones vary less
MOST_GROUPS = 64  # of layers that follow each other: more would cost the simulation's time, and tell no more


@dataclass(frozen=True)
class LayerTime:
    """A parameter's values, and the seconds until its gradient was there, after the one before."""

    values: int
    backward_s: float


class LayerClock:
    """Listens to a model for a few steps. `now_s` is a monotonic clock.

    On a GPU, which works later than it is told to, a layer's part is that of its values.
    """

    def __init__(self, model: torch.nn.Module, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._now_s = now_s
        self._parameters = [one for one in model.parameters() if one.requires_grad]
        self._forward_end_s = 0.0
        self._came_s: dict[torch.Tensor, float] = {}
        self._steps: list[tuple[float, list[tuple[torch.Tensor, float]]]] = []
        self._made, self._timed, self._timed_s = 0, 0, 0.0
        self._is_over = False
        self._handles: list[Any] = [model.register_forward_hook(self._note_forward)]
        for parameter in self._parameters:
            handle = parameter.register_post_accumulate_grad_hook(self._note_gradient)  # type: ignore[no-untyped-call]  # torch leaves it untyped
            self._handles.append(handle)

    def after_step(self, compute_s: float, step_s: float, steps: int = 1) -> bool:
        """A step of `step_s` was made, with so many seconds of computing; True once it has heard enough.

        Or the `steps` of a round were, of so many seconds each: the last one's gradients tell of all.
        """
        if self._is_over:
            return True
        stamps, last_s = [], self._forward_end_s
        for parameter, came_s in sorted(self._came_s.items(), key=lambda item: item[1]):
            stamps.append((parameter, came_s - last_s))
            last_s = came_s
        self._came_s = {}
        timed = steps - max(0, WARM_UP_STEPS - self._made)
        self._made += steps
        if timed > 0:
            self._steps.append((compute_s, stamps))
            self._timed += timed
            self._timed_s += timed * step_s
        if self._timed >= (LONG_STEPS if self._timed_s >= LONG_S else STEPS):
            self._is_over = True
            self.close()
        return self._is_over

    def layers(self) -> list[MeasuredLayer]:
        """From the first layer to the last; nothing before enough steps.

        Of a step whatever isn't backward pass counts as forward pass: it can't hide communication either.
        """
        if not self._is_over:
            return []
        found = self._times()
        backward_s = math.fsum(one.backward_s for one in found)
        forward_s = max(0.0, median(compute_s for compute_s, _ in self._steps) - backward_s)
        groups = list(_grouped(found))
        return [
            MeasuredLayer(
                parameters=group.values,
                # A pass costs a layer's like in both directions, as far as anybody knows.
                forward_s=forward_s * (group.backward_s / backward_s if backward_s else 1 / len(groups)),
                backward_s=group.backward_s,
            )
            for group in groups
        ]

    def close(self) -> None:
        """Takes its hooks off the model."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _times(self) -> list[LayerTime]:
        """Medians over the steps, from the first layer to the last: gradients come the other way round."""
        durations: dict[torch.Tensor, list[float]] = {}
        for _, stamps in self._steps:
            for parameter, seconds in stamps:
                durations.setdefault(parameter, []).append(seconds)
        order = [parameter for parameter, _ in reversed(self._steps[-1][1])]
        times = [LayerTime(one.numel(), max(0.0, median(durations[one]))) for one in order]
        if not order or order[0].device.type == "cpu":
            return times
        whole_s = math.fsum(one.backward_s for one in times)
        values = sum(one.values for one in times)
        return [LayerTime(one.values, whole_s * one.values / values) for one in times]

    def _note_forward(self, *_: object) -> None:
        # With a batch in several pieces only the last one's gradients travel.
        self._forward_end_s = self._now_s()
        self._came_s = {}

    def _note_gradient(self, parameter: torch.Tensor) -> None:
        self._came_s[parameter] = self._now_s()


def _grouped(layers: Iterable[LayerTime]) -> Iterable[LayerTime]:
    """Small layers that follow each other as one, so that at most `MOST_GROUPS` and one are left."""
    layers = list(layers)
    least = sum(one.values for one in layers) / MOST_GROUPS
    values, backward_s = 0, 0.0
    for layer in layers:
        values, backward_s = values + layer.values, backward_s + layer.backward_s
        if values >= least:
            yield LayerTime(values, backward_s)
            values, backward_s = 0, 0.0
    if values:
        yield LayerTime(values, backward_s)
