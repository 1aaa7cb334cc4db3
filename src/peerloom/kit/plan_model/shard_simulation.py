"""A step of a model in shards, unit by unit: when its values are there, and when its gradients are summed."""

from collections.abc import Sequence
from typing import NamedTuple

from peerloom.kit.plan_model.pipeline_order import PassKind, PipelinePass
from peerloom.kit.plan_model.pipeline_simulation import SimulatedPipeline, TimedSum, WorkerOrder
from peerloom.kit.plan_model.shard_costs import UnitParts
from peerloom.kit.plan_model.stage_costs import Boundary, StageCost
from peerloom.kit.shard_travel import UNITS_AHEAD

_KINDS = (PassKind.FORWARD, PassKind.BACKWARD)


class _Ring(NamedTuple):
    """Seconds that the slowest way takes for all values, or gradients, and the longest delay to the last.

    On the way to the last `stops` workers pass on each piece.
    """

    values_s: float
    gradients_s: float
    delay_s: float
    stops: int


class _Line:
    """What the ring carries, one after the other: it returns when that has arrived, asked for at `now_s`."""

    def __init__(self, ring: _Ring) -> None:
        self._ring, self._free_s = ring, 0.0

    def values(self, unit: UnitParts, now_s: float) -> float:
        return self._carried(self._ring.values_s, unit, now_s)

    def gradients(self, unit: UnitParts, now_s: float) -> float:
        return self._carried(self._ring.gradients_s, unit, now_s)

    def _carried(self, all_s: float, unit: UnitParts, now_s: float) -> float:
        self._free_s = max(self._free_s, now_s) + all_s * unit.value
        return self._free_s + self._ring.stops * all_s * unit.piece + self._ring.delay_s


def simulate_shards(
    stages: Sequence[StageCost], ways: Sequence[Boundary], units: Sequence[UnitParts]
) -> SimulatedPipeline:
    """All compute a unit once its values are there, and those of the next ones come meanwhile.

    Units go through the ring one after the other, as fast as its slowest way, values and gradients by turns
    as they come; the slowest worker holds all others up. The last unit's values stay for its backward passes.
    """
    line = _Line(_ring_of(ways))
    forward_s, backward_s = max(one.forward_s[0] for one in stages), max(one.backward_s[0] for one in stages)
    visits, forwards = [*units, *units[-2::-1]], len(units)
    arrivals_s, now_s, turned_s, summed_s = list[float](), 0.0, 0.0, 0.0
    for position, unit in enumerate(visits):
        arrivals_s += [
            line.values(one, now_s) for one in visits[len(arrivals_s) : position + UNITS_AHEAD + 1]
        ]
        now_s = max(now_s, arrivals_s[position])
        if position < forwards:
            now_s = turned_s = now_s + forward_s * unit.forward
        if position >= forwards - 1:
            now_s += backward_s * unit.backward
            summed_s = line.gradients(unit, now_s)
    orders = tuple(
        WorkerOrder(shard, 0, tuple(PipelinePass(shard, shard, kind) for kind in _KINDS))
        for shard in range(len(stages))
    )
    spans_s = [[(0.0, turned_s), (turned_s, now_s)] for _ in stages]
    step_s = max(now_s, summed_s)
    return SimulatedPipeline(step_s, (TimedSum(now_s, step_s),) * len(stages), orders, spans_s)


def least_shards_s(
    stages: Sequence[StageCost], ways: Sequence[Boundary], units: Sequence[UnitParts]
) -> float:
    """A step can't take less: all passes of the slowest worker, or all that its slowest way carries."""
    ring = _ring_of(ways)
    computing_s = max(one.forward_s[0] for one in stages) + max(one.backward_s[0] for one in stages)
    return max(computing_s, ring.values_s * (2 - units[-1].value) + ring.gradients_s + ring.delay_s)


def _ring_of(ways: Sequence[Boundary]) -> _Ring:
    delays_s = [way.there_delay_s for (way,) in ways]
    return _Ring(
        max(way.there_s for (way,) in ways),
        max(way.back_s for (way,) in ways),
        sum(delays_s) - min(delays_s),  # the way back to where it began isn't gone
        max(0, len(ways) - 2),
    )
