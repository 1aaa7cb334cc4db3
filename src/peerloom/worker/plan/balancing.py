"""At which layers the stages of a pipeline begin: pure, of costs, shares and memory."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from peerloom.errors import InvalidArgumentError
from peerloom.kit.parallel_plan import ParallelPlan

# What activations and messages take beside the state isn't known here.
MOST_OF_ROOM = 0.75
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class LayerFacts:
    """A layer's name, its cost for one sample in any unit, and how many of its numbers are trained.

    It is held in `held_bytes`, with gradients and what an optimiser keeps.
    """

    name: str
    cost: float
    parameters: int
    held_bytes: int = 0


def stage_starts(
    layers: Sequence[LayerFacts],
    plan: ParallelPlan,
    why_single: str = "",
    shares: Sequence[int] = (),
    rooms: Sequence[int] = (),
) -> tuple[int, ...]:
    """The first layer of each stage, from 0: the plan's own, or those whose dearest stage costs least.

    A stage's cost counts by its share: one of 2 may cost twice as much as one of 1; empty: as much for each
    worker. `rooms` are the bytes of memory that each stage has: none holds more than MOST_OF_ROOM of them
    where a cut allows that, and else none more than must be; empty: enough. Each stage has something to
    train. `why_single` says why a model is a single layer. Raises InvalidArgumentError for more stages than
    that allows, and for starts beyond the layers.
    """
    if plan.stages == 1:
        return (0,)
    if len(layers) == 1:
        limit = f"data: the model can't be cut ({why_single})"
        raise InvalidArgumentError.of_field("plan", str(plan), limit)
    if plan.starts:
        return _checked(layers, plan)
    units = unit_starts(layers)
    if plan.stages > len(units):
        limit = (
            f"at most {plan.kind}={len(units)}: {len(units)} of the model's {len(layers)} layers have "
            "parameters to train, and each stage needs one"
        )
        raise InvalidArgumentError.of_field("plan", str(plan), limit)
    cost = _sums(units, [layer.cost for layer in layers])
    stages = plan.stages
    shares = list(shares) or plan.widths or (1,) * stages

    def dearness(stage: int, first: int, end: int) -> float:
        return (cost[end] - cost[first]) / shares[stage]

    if len(rooms) != stages:
        return tuple(units[first] for first in _least(len(units), stages, dearness)[1])
    held = _sums(units, [layer.held_bytes for layer in layers])

    def fullness(stage: int, first: int, end: int) -> float:
        return (held[end] - held[first]) / max(1, rooms[stage])

    most = max(MOST_OF_ROOM, _least(len(units), stages, fullness)[0]) * _ROUNDING

    def dearness_of_fitting(stage: int, first: int, end: int) -> float:
        return dearness(stage, first, end) if fullness(stage, first, end) <= most else math.inf

    return tuple(units[first] for first in _least(len(units), stages, dearness_of_fitting)[1])


def ends_of(starts: Sequence[int], layers: int) -> tuple[int, ...]:
    """One past the last layer of each stage."""
    return (*starts[1:], layers)


def _checked(layers: Sequence[LayerFacts], plan: ParallelPlan) -> tuple[int, ...]:
    starts = (0, *plan.starts)
    if starts[-1] >= len(layers):
        limit = f"stages that begin within the model's {len(layers)} layers, 0 to {len(layers) - 1}"
        raise InvalidArgumentError.of_field("plan", str(plan), limit)
    for stage, (start, end) in enumerate(zip(starts, ends_of(starts, len(layers)), strict=True)):
        if not any(layer.parameters for layer in layers[start:end]):
            named = ", ".join(layer.name for layer in layers[start:end])
            limit = f"other starts: stage {stage} ({named}) would have nothing to train"
            raise InvalidArgumentError.of_field("plan", str(plan), limit)
    return starts


def unit_starts(layers: Sequence[LayerFacts]) -> list[int]:
    """The first layers of the smallest stages: what has nothing to train goes with what it follows."""
    trained = [index for index, layer in enumerate(layers) if layer.parameters]
    return [0, *trained[1:]] if trained else []


def _sums(units: Sequence[int], values: Sequence[float]) -> list[float]:
    """By a number of units, what the layers of the first so many come to."""
    before = [0.0, *accumulate(values)]
    return [before[first] for first in (*units, len(values))]


def _least(
    units: int, stages: int, value_of: Callable[[int, int, int], float]
) -> tuple[float, tuple[int, ...]]:
    """The division of so many units whose greatest value is least: that, and the first unit of each stage.

    `value_of` a stage, its first unit, and one past its last.
    """
    # Of the units before each end, in so many stages.
    best: dict[int, tuple[float, tuple[int, ...]]]
    best = {end: (value_of(0, 0, end), (0,)) for end in range(1, units + 1)}
    for stage in range(1, stages):
        following: dict[int, tuple[float, tuple[int, ...]]] = {}
        for end in range(stage + 1, units + 1):
            greatest, first = min(
                (max(best[first][0], value_of(stage, first, end)), first) for first in range(stage, end)
            )
            following[end] = (greatest, (*best[first][1], first))
        best = following
    return best[units]
