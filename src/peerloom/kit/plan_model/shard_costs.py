"""What a model in shards takes on its slots: each computes its part of a batch, with all layers.

Values go along a ring of the slots, from each to the next, and gradients too, a unit at a time: a layer with
parameters and what follows it. A shard's `BoundaryCost` is its way to the next: there all values, once, and
back their gradients.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from peerloom.kit.parallel_plan import micro_batch_sizes
from peerloom.kit.plan_model.placed_plan import PlacedPlan
from peerloom.kit.plan_model.plan_setting import SAME_HOST_BITS_PER_S, PlanSetting
from peerloom.kit.plan_model.stage_costs import Boundary, BoundaryCost, StageCost, StageCosts, StageMemory
from peerloom.kit.shard_travel import MOST_UNSUMMED, UNITS_AHEAD, piece_bytes

# Between slots of one host the processor sets the pace: it carries each piece, and adds gradients up.
WITHIN_HOST_BITS_PER_S = 4e9
# Each as large as the largest, beside a shard's own: one is in use, others come, and gradients wait.
UNITS_ON_THEIR_WAY = 1 + UNITS_AHEAD + MOST_UNSUMMED


class UnitParts(NamedTuple):
    """A unit's parts of the forward passes, of the backward ones, and of the bytes that travel, 0 to 1.

    `piece` is that of the bytes which a worker passes on before it has the rest of the unit.
    """

    forward: float
    backward: float
    value: float
    piece: float


class ShardCosts(NamedTuple):
    """Costs and memory by shard, each one's way to the next, and the units that all go through."""

    stages: tuple[StageCost, ...]
    ways: tuple[Boundary, ...]
    memory: tuple[StageMemory, ...]
    units: tuple[UnitParts, ...]


def can_be_sharded(setting: PlanSetting) -> bool:
    """Whether no layer has buffers, sparse gradients, or tensors that belong to another one too."""
    return not any(layer.is_narrow or layer.is_tied for layer in setting.layers)


def shard_costs(plan: PlacedPlan, setting: PlanSetting, costs: StageCosts) -> ShardCosts | None:
    """Of a plan in shards; None where a slot would have no sample, or a layer can't be in a shard."""
    if setting.batch < len(plan.stages) or not can_be_sharded(setting):
        return None
    layers, slots = setting.layers, plan.slots
    units, parameters = units_of_layers(setting), [0, *accumulate(layer.parameters for layer in layers)]
    forward_s, backward_s = sum(one.forward_s for one in layers), sum(one.backward_s for one in layers)
    samples = micro_batch_sizes(setting.batch, len(slots))
    overhead_s = setting.pass_overhead_s * len(units)
    stages = []
    for stage, slot, share in zip(plan.stages, slots, samples, strict=True):
        taken = share / setting.slots[slot].speed
        breaks = costs.breaks_of(stage.slots, parameters[stage.end] - parameters[stage.first])
        passes_s = ((overhead_s + taken * forward_s,), (overhead_s + taken * backward_s,))
        stages.append(StageCost((share,), *passes_s, 0.0, *breaks))
    bits = 8 * setting.value_bytes * parameters[-1]
    ways = tuple(_way(setting, bits, i, j) for i, j in zip(slots, (*slots[1:], slots[0]), strict=True))
    beside = beside_shards(setting, samples)
    memory = []
    for stage, slot, more in zip(plan.stages, slots, beside, strict=True):
        own = setting.state_bytes * (parameters[stage.end] - parameters[stage.first])
        missing = own + more - setting.slots[slot].memory_bytes
        memory.append(StageMemory(slot, own + more, max(0.0, missing)))
    return ShardCosts(tuple(stages), ways, tuple(memory), units)


def _way(setting: PlanSetting, bits: float, one: int, other: int) -> Boundary:
    rate, delay_s = setting.network.bits_per_s[one][other], setting.network.delay_s[one][other]
    taken_s = bits / (WITHIN_HOST_BITS_PER_S if rate == SAME_HOST_BITS_PER_S else rate)
    return (BoundaryCost(taken_s, delay_s, taken_s, delay_s),)


def beside_shards(setting: PlanSetting, samples: Sequence[int]) -> list[float]:
    """Bytes that each of these needs beside its shard: units on their way, and activations of its samples."""
    kept = sum(layer.kept_bytes for layer in setting.layers)
    largest = max(layer.parameters for layer in setting.layers) * setting.value_bytes
    return [UNITS_ON_THEIR_WAY * largest + count * kept for count in samples]


def units_of_layers(setting: PlanSetting) -> tuple[UnitParts, ...]:
    """What has no parameters goes with what it follows, or with the first that has some."""
    layers = setting.layers
    trained = [number for number, layer in enumerate(layers) if layer.parameters]
    starts = [0, *trained[1:]]
    forward_s, backward_s = sum(one.forward_s for one in layers), sum(one.backward_s for one in layers)
    parameters = sum(layer.parameters for layer in layers)
    found = []
    for first, end in zip(starts, (*starts[1:], len(layers)), strict=True):
        mine = layers[first:end]
        own = sum(one.parameters for one in mine)
        found.append(
            UnitParts(
                sum(one.forward_s for one in mine) / (forward_s or 1.0),
                sum(one.backward_s for one in mine) / (backward_s or 1.0),
                own / (parameters or 1),
                min(own, piece_bytes(int(setting.value_bytes * own)) / setting.value_bytes)
                / (parameters or 1),
            )
        )
    return tuple(found)
