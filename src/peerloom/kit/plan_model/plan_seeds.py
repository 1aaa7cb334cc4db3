"""Plans to begin a search with: slots in a few orders, in groups as even as can be, layers by their speed."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations
from typing import NamedTuple

from peerloom.kit.plan_model.placed_plan import PlacedPlan, PlanStage, ranks_of
from peerloom.kit.plan_model.plan_setting import PlanSetting
from peerloom.kit.plan_model.plan_space import micro_batch_counts
from peerloom.kit.plan_model.plan_value import held_in_stages
from peerloom.kit.plan_model.stage_costs import StageCosts

_HALVINGS = 16  # of the guess of the slowest stage's time
_PERMUTED = 4  # slots, whose orders are 24
_PER_WORKER = (1, 2, 4)  # micro-batches for each worker of a pipeline, about


def seed_plans(setting: PlanSetting, orders: Sequence[str], costs: StageCosts) -> Iterator[PlacedPlan]:
    """Each slot alone, the first slots of each order as one stage, and pipelines of all lengths."""
    counts = micro_batch_counts(setting.batch)
    seen = set()
    for sequence in slot_sequences(setting):
        for stages in range(1, min(len(setting.layers), len(sequence)) + 1):
            for groups in _groupings(sequence, stages):
                workers = ranks_of(tuple(map(len, groups))).workers
                wanted = [min(counts, key=lambda one: abs(one - each * workers)) for each in _PER_WORKER]
                for count in dict.fromkeys(wanted):
                    cut = _balanced(setting, costs, groups, count, orders[0])
                    plan = PlacedPlan(cut, count, orders[0])
                    if plan not in seen:
                        seen.add(plan)
                        yield plan


def slot_sequences(setting: PlanSetting) -> list[tuple[int, ...]]:
    """Orders in which slots may stand in a pipeline: all of a few slots, else those by speed, memory or stay.

    Or near ones beside each other; each of them forwards and backwards.
    """
    slots = range(len(setting.slots))
    if len(slots) <= _PERMUTED:
        return list(permutations(slots))
    found = [
        tuple(slots),
        tuple(sorted(slots, key=lambda one: (-setting.slots[one].speed, one))),
        tuple(sorted(slots, key=lambda one: (-setting.slots[one].memory_bytes, one))),
        tuple(sorted(slots, key=lambda one: (-setting.slots[one].interruption_s, one))),
        _chain(setting),
    ]
    return list(dict.fromkeys((*found, *(one[::-1] for one in found))))


def _chain(setting: PlanSetting) -> tuple[int, ...]:
    """From the fastest slot on, each time the one which a message reaches soonest."""
    message_bits = 8 * max(layer.output_bytes for layer in setting.layers) or 1.0
    left = list(range(len(setting.slots)))
    chain = [max(left, key=lambda one: (setting.slots[one].speed, -one))]
    left.remove(chain[0])
    network = setting.network

    def way(other: int) -> tuple[float, float, int]:
        here = chain[-1]
        travels_s = message_bits / network.bits_per_s[here][other] + network.delay_s[here][other]
        return travels_s, -setting.slots[other].speed, other

    while left:
        chain.append(min(left, key=way))
        left.remove(chain[-1])
    return tuple(chain)


def _groupings(sequence: Sequence[int], stages: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All slots in even groups, and the first ones alone; for one stage, the first so many."""
    if stages == 1:
        for count in range(1, len(sequence) + 1):
            yield (tuple(sorted(sequence[:count])),)
        return
    edges = [len(sequence) * number // stages for number in range(stages + 1)]
    yield tuple(tuple(sorted(sequence[first:end])) for first, end in pairwise(edges))
    if stages < len(sequence):
        yield tuple((slot,) for slot in sequence[:stages])


def _balanced(
    setting: PlanSetting, costs: StageCosts, groups: Sequence[tuple[int, ...]], count: int, order: str
) -> tuple[PlanStage, ...]:
    """Layers cut so that the slowest stage computes as little as can be, within memory where possible.

    By halving a guess of its time: stages are filled one after the other up to the guess.
    """
    layers = len(setting.layers)
    if len(groups) == 1:
        return (PlanStage(0, layers, groups[0]),)
    before_s = costs.seconds_before()
    stages = [_stage_room(setting, costs, groups, number, count, order) for number in range(len(groups))]
    low_s, high_s = 0.0, before_s[-1] / min(stage.speed for stage in stages)
    best = _filled(before_s, stages, high_s)
    for _ in range(_HALVINGS):
        guess_s = (low_s + high_s) / 2
        found = _filled(before_s, stages, guess_s)
        if found[-1] < layers:
            low_s = guess_s
        else:
            best, high_s = found, guess_s
    edges = [0, *best[:-1], layers]
    return tuple(
        PlanStage(first, end, group) for first, end, group in zip(edges, edges[1:], groups, strict=False)
    )


class _StageRoom(NamedTuple):
    """A group's speed, what so many first layers need there, and the least memory that a slot has.

    Slots that take turns are as fast as the slowest of them times their number.
    """

    speed: float
    needed: list[float]
    memory_bytes: float


def _stage_room(
    setting: PlanSetting,
    costs: StageCosts,
    groups: Sequence[tuple[int, ...]],
    number: int,
    count: int,
    order: str,
) -> _StageRoom:
    slots = [setting.slots[slot] for slot in groups[number]]
    held = max(held_in_stages(order, ranks_of(tuple(map(len, groups))), count)[number])
    needed = costs.needed_before(held * (setting.batch // count))
    speed = len(slots) * min(slot.speed for slot in slots)
    return _StageRoom(speed, needed, min(slot.memory_bytes for slot in slots))


def _filled(before_s: Sequence[float], stages: Sequence[_StageRoom], most_s: float) -> list[int]:
    """Where each stage ends; the last below the number of layers when they don't fit."""
    layers, ends, first = len(before_s) - 1, [], 0
    for number, stage in enumerate(stages):
        by_time = bisect_right(before_s, before_s[first] + most_s * stage.speed) - 1
        by_memory = bisect_right(stage.needed, stage.needed[first] + stage.memory_bytes) - 1
        left = len(stages) - number - 1
        first = min(max(first + 1, min(by_time, by_memory)), layers - left)
        ends.append(first)
    return ends
