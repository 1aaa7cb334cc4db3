"""At which layers the stages of a pipeline begin: pure, of costs and shares."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.errors import InvalidArgumentError
from peerloom.kit.parallel_plan import ParallelPlan


@dataclass(frozen=True)
class LayerFacts:
    """A layer's name, its cost for one sample in any unit, and how many of its numbers are trained."""

    name: str
    cost: float
    parameters: int


def stage_starts(
    layers: Sequence[LayerFacts], plan: ParallelPlan, why_single: str = "", shares: Sequence[int] = ()
) -> tuple[int, ...]:
    """The first layer of each stage, from 0: the plan's own, or those whose dearest stage costs least.

    A stage's cost counts by its share: one of 2 may cost twice as much as one of 1; empty: as much for each
    worker. Each stage has something to train. `why_single` says why a model is a single layer. Raises
    InvalidArgumentError for more stages than that allows, and for starts beyond the layers.
    """
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
    ends = ends_of(units, len(layers))
    costs = [sum(each.cost for each in layers[a:b]) for a, b in zip(units, ends, strict=True)]
    return _balanced(units, costs, list(shares) or plan.ranks.widths)


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


def _balanced(units: Sequence[int], costs: Sequence[float], shares: Sequence[int]) -> tuple[int, ...]:
    before = [0.0]
    for cost in costs:
        before.append(before[-1] + cost)
    # Of the units before each end, in so many stages: what the dearest stage costs at least, and the stages.
    best: dict[int, tuple[float, tuple[int, ...]]] = {
        end: (before[end] / shares[0], (0,)) for end in range(1, len(units) + 1)
    }
    for stages in range(2, len(shares) + 1):
        following: dict[int, tuple[float, tuple[int, ...]]] = {}
        for end in range(stages, len(units) + 1):
            found = (math.inf, tuple[int, ...]())
            for start in range(stages - 1, end):
                dearest = max(best[start][0], (before[end] - before[start]) / shares[stages - 1])
                if dearest < found[0]:
                    found = (dearest, (*best[start][1], start))
            following[end] = found
        best = following
    return tuple(units[start] for start in best[len(units)][1])
