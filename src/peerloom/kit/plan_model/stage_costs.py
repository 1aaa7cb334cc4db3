"""What a stage takes on its slots: passes, shares, messages to the next stage, the sum of its gradients."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from peerloom.kit.plan_model.placed_plan import PlanStage
from peerloom.kit.plan_model.plan_setting import PlanSetting
from peerloom.kit.sync_model.bucket_stages import bucket_plan
from peerloom.kit.sync_model.buckets import GradientBucket
from peerloom.kit.sync_model.layer_times import LayerTimes
from peerloom.kit.sync_model.message_rounds import SumTopology, topology_of
from peerloom.kit.sync_model.step_simulation import CodecWork
from peerloom.kit.sync_model.sync_setting import SyncSetting


class StageCost(NamedTuple):
    """A stage's seconds for one micro-batch, and for a step; `shares` are samples, one number a slot.

    `breaks_per_s` are expected in the stage, and `break_loss` of a second's work is lost by them beside half
    a step each.
    """

    shares: tuple[int, ...]
    forward_s: float
    backward_s: float
    sum_s: float
    breaks_per_s: float
    break_loss: float


class StageMemory(NamedTuple):
    """What a slot of a stage needs, and what is missing there, in bytes; the stage's worst, by number."""

    slot: int
    needed_bytes: float
    missing_bytes: float


class BoundaryCost(NamedTuple):
    """A micro-batch's messages between two stages: how long they occupy both, and are on their way then.

    Activations go there, and their gradients come back.
    """

    there_s: float
    there_delay_s: float
    back_s: float
    back_delay_s: float


def shares_by_speed(samples: int, speeds: Sequence[float]) -> tuple[int, ...]:
    """Whole samples, so that the slot that takes longest takes the least time."""
    whole = sum(speeds)
    shares = [int(samples * speed / whole) for speed in speeds]
    for _ in range(samples - sum(shares)):
        earliest = min(range(len(speeds)), key=lambda one: ((shares[one] + 1) / speeds[one], one))
        shares[earliest] += 1
    return tuple(shares)


class StageCosts:
    """The costs of a setting's stages, each reckoned once."""

    def __init__(self, setting: PlanSetting) -> None:
        self._setting = setting
        layers = setting.layers
        self._forward_s = [0.0, *accumulate(layer.forward_s for layer in layers)]
        self._backward_s = [0.0, *accumulate(layer.backward_s for layer in layers)]
        self._parameters = [0, *accumulate(layer.parameters for layer in layers)]
        self._kept = [0.0, *accumulate(layer.kept_bytes for layer in layers)]
        self._stages: dict[tuple[PlanStage, int], StageCost | None] = {}
        self._memory: dict[tuple[PlanStage, int, int], StageMemory] = {}
        self._needed: dict[int, list[float]] = {}
        self._sums: dict[tuple[tuple[int, ...], int], float] = {}
        self._topologies: dict[tuple[int, ...], tuple[SyncSetting, SumTopology]] = {}
        self._shares: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
        self._boundaries: dict[tuple[float, tuple[int, ...], tuple[int, ...], int], BoundaryCost] = {}

    def of(self, stage: PlanStage, samples: int) -> StageCost | None:
        """For micro-batches of so many samples; None where a slot would have no sample of them."""
        key = stage, samples
        if key not in self._stages:
            self._stages[key] = self._reckoned(stage, samples)
        return self._stages[key]

    def between(self, stage: PlanStage, after: PlanStage, samples: int) -> BoundaryCost:
        """Each slot sends the next stage's slots those of its samples that are theirs, one by one."""
        each = self._setting.layers[stage.end - 1].output_bytes
        key = each, stage.slots, after.slots, samples
        if key not in self._boundaries:
            self._boundaries[key] = self._boundary(*key)
        return self._boundaries[key]

    def memory_of(self, stage: PlanStage, samples: int, held: int) -> StageMemory:
        """While activations of `held` micro-batches of so many samples wait for their backward passes."""
        key = stage, samples, held
        if key not in self._memory:
            first, end, slots = stage
            found = []
            for slot, share in zip(slots, self.shares_of(slots, samples), strict=True):
                needed = self.needed_before(held * share)
                needed_bytes = needed[end] - needed[first]
                missing_bytes = needed_bytes - self._setting.slots[slot].memory_bytes
                found.append((missing_bytes, -slot, needed_bytes))
            missing_bytes, slot, needed_bytes = max(found)
            self._memory[key] = StageMemory(-slot, needed_bytes, max(0.0, missing_bytes))
        return self._memory[key]

    def needed_before(self, samples: int) -> list[float]:
        """By a number of layers, what the first so many need with activations of so many samples."""
        if samples not in self._needed:
            state = self._setting.state_bytes
            self._needed[samples] = [
                parameters * state + samples * kept
                for parameters, kept in zip(self._parameters, self._kept, strict=True)
            ]
        return self._needed[samples]

    def seconds_before(self) -> list[float]:
        """By a number of layers, a sample's seconds in the first so many, both ways, on a slot of speed 1."""
        return [there + back for there, back in zip(self._forward_s, self._backward_s, strict=True)]

    def shares_of(self, slots: tuple[int, ...], samples: int) -> tuple[int, ...]:
        """How many samples each slot gets."""
        key = slots, samples
        if key not in self._shares:
            speeds = [self._setting.slots[slot].speed for slot in slots]
            self._shares[key] = shares_by_speed(samples, speeds)
        return self._shares[key]

    def _reckoned(self, stage: PlanStage, samples: int) -> StageCost | None:
        first, end, slots = stage
        shares, setting = self.shares_of(slots, samples), self._setting
        if min(shares) == 0:
            return None
        slowest = max(share / setting.slots[slot].speed for share, slot in zip(shares, slots, strict=True))
        parameters = self._parameters[end] - self._parameters[first]
        state_bytes = parameters * setting.state_bytes
        breaks_per_s = sum(1 / setting.slots[slot].interruption_s for slot in slots)
        lost_s = setting.regroup_s
        if len(slots) == 1:
            lost_s += setting.snapshot_s / 2 + self._fetch_s(slots[0], state_bytes)
        return StageCost(
            shares=shares,
            forward_s=setting.pass_overhead_s + slowest * (self._forward_s[end] - self._forward_s[first]),
            backward_s=setting.pass_overhead_s + slowest * (self._backward_s[end] - self._backward_s[first]),
            sum_s=self._sum_s(slots, parameters),
            breaks_per_s=breaks_per_s,
            break_loss=breaks_per_s * lost_s,
        )

    def _fetch_s(self, slot: int, state_bytes: float) -> float:
        """To where this slot is, by the slowest way there: who replaces it may sit anywhere."""
        rates = self._setting.network.bits_per_s
        slowest = min((rates[other][slot] for other in range(len(rates)) if other != slot), default=0.0)
        return state_bytes * 8 / slowest if slowest else 0.0

    def _sum_s(self, slots: tuple[int, ...], parameters: int) -> float:
        """All gradients of a stage in one message's rounds, after its last backward pass."""
        if len(slots) == 1 or not parameters:
            return 0.0
        key = slots, parameters
        if key not in self._sums:
            sync_setting, topology = self._topology(slots)
            # Half the bytes a value are half the values of single precision.
            values = max(1, round(parameters * self._setting.value_bytes / 4))
            stages = bucket_plan(
                self._setting.sync, sync_setting, topology, GradientBucket(0, 0, values)
            ).stages
            self._sums[key] = sum(
                one.seconds
                if isinstance(one, CodecWork)
                else max((busy_s for _, busy_s in one.busy), default=0.0) + one.delay_s
                for one in stages
            )
        return self._sums[key]

    def _topology(self, slots: tuple[int, ...]) -> tuple[SyncSetting, SumTopology]:
        if slots not in self._topologies:
            network = self._setting.network.among(slots)
            layers = (LayerTimes("stage", 0, 0.0, 0.0),)
            self._topologies[slots] = (
                SyncSetting(network, layers),
                topology_of(self._setting.sync, network),
            )
        return self._topologies[slots]

    def _boundary(
        self, each: float, before: tuple[int, ...], after: tuple[int, ...], samples: int
    ) -> BoundaryCost:
        ways = _overlaps(before, self.shares_of(before, samples), after, self.shares_of(after, samples))
        there = [(i, j, count * each) for i, j, count in ways]
        back = [(j, i, count * each) for i, j, count in ways]
        return BoundaryCost(*self._travel(there), *self._travel(back))

    def _travel(self, messages: list[tuple[int, int, float]]) -> tuple[float, float]:
        """Messages (from, to, bytes) occupy both ends, one by one: the busiest end, the longest way."""
        network = self._setting.network
        sends: dict[int, float] = {}
        gets: dict[int, float] = {}
        for i, j, count in messages:
            busy_s = count * 8 / network.bits_per_s[i][j]
            sends[i] = sends.get(i, 0.0) + busy_s
            gets[j] = gets.get(j, 0.0) + busy_s
        return max(*sends.values(), *gets.values()), max(network.delay_s[i][j] for i, j, _ in messages)


def _overlaps(
    before: Sequence[int], shares: Sequence[int], after: Sequence[int], next_shares: Sequence[int]
) -> list[tuple[int, int, int]]:
    """(slot, slot of the next stage, samples that go from one to the other); samples keep their order."""
    found = []
    mine, theirs = [0, *accumulate(shares)], [0, *accumulate(next_shares)]
    for number, slot in enumerate(before):
        for place, other in enumerate(after):
            count = min(mine[number + 1], theirs[place + 1]) - max(mine[number], theirs[place])
            if count > 0:
                found.append((slot, other, count))
    return found
