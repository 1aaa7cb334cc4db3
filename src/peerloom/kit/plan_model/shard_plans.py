"""Plans in shards to be looked at: slots in a few orders, layers cut by the slots' memory."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from peerloom.kit.parallel_plan import micro_batch_sizes
from peerloom.kit.plan_model.pipeline_order import GPIPE
from peerloom.kit.plan_model.placed_plan import PlacedPlan, PlanStage
from peerloom.kit.plan_model.plan_seeds import slot_sequences
from peerloom.kit.plan_model.plan_setting import PlanSetting
from peerloom.kit.plan_model.shard_costs import beside_shards, can_be_sharded

_HALVINGS = 24  # of the guess of the fullest slot's part


def shard_plans(setting: PlanSetting) -> Iterator[PlacedPlan]:
    """The first slots of each order, two or more, each once."""
    if not can_be_sharded(setting):
        return
    seen = set()
    most = min(len(setting.layers), len(setting.slots), setting.batch)
    for sequence in slot_sequences(setting):
        for count in range(2, most + 1):
            if sequence[:count] not in seen:
                seen.add(sequence[:count])
                yield sharded_on(setting, sequence[:count])


def sharded_on(setting: PlanSetting, slots: Sequence[int]) -> PlacedPlan:
    """On these slots, of which the fullest has as much left as can be."""
    beside = beside_shards(setting, micro_batch_sizes(setting.batch, len(slots)))
    # What isn't there counts as a byte, so that the least goes there.
    rooms = [
        max(1.0, setting.slots[one].memory_bytes - more) for one, more in zip(slots, beside, strict=True)
    ]
    before = [0.0, *accumulate(layer.parameters * setting.state_bytes for layer in setting.layers)]
    low, high = 0.0, before[-1] / min(rooms) + 1
    best = _filled(before, rooms, high)
    for _ in range(_HALVINGS):
        guess = (low + high) / 2
        found = _filled(before, rooms, guess)
        low, high, best = (guess, high, best) if found[-1] < len(before) - 1 else (low, guess, found)
    edges = [0, *best[:-1], len(setting.layers)]
    parts = zip(edges, edges[1:], slots, strict=False)
    stages = tuple(PlanStage(first, end, (slot,)) for first, end, slot in parts)
    return PlacedPlan(stages, len(stages), GPIPE, is_sharded=True)


def _filled(before: Sequence[float], rooms: Sequence[float], part: float) -> list[int]:
    """Where each shard ends when so large a part of each room is used; the last early if that is little."""
    layers, ends, first = len(before) - 1, [], 0
    for number, room in enumerate(rooms):
        end = bisect_right(before, before[first] + part * room) - 1
        first = min(max(first + 1, end), layers - (len(rooms) - number - 1))
        ends.append(first)
    return ends
