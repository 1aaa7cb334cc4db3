"""What a stage takes on its slots: passes, shares, messages to the next stage, the sum of its gradients.

The slots of a plan's only stage share the samples of a micro-batch; those of one of several stages take turns
at whole micro-batches, in the order of their numbers.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from peerloom.kit.plan_model.pipeline_order import is_split
from peerloom.kit.plan_model.placed_plan import PlanStage
from peerloom.kit.plan_model.plan_setting import PlanSetting
from peerloom.kit.plan_model.stage_sums import StageSums


class StageCost(NamedTuple):
    """A stage's seconds for a micro-batch, and for a step; `shares` are samples of one, a number a slot.

    Passes have a number for each slot that takes turns; one for all where they share samples.
    `breaks_per_s` are expected in the stage, and `break_loss` of a second's work is lost by them beside half
    a step each. A pass costs `overhead_s` of its time besides its samples.
    """

    shares: tuple[int, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    sum_s: float
    breaks_per_s: float
    break_loss: float
    overhead_s: float = 0.0

    def pass_back_s(self, order: str) -> tuple[float, ...]:
        """A pass of the backward ones; of each of the two, where gradients of weights have one of their own.

        A dense layer has a product of matrices for the gradient of its inputs, and one for its weights'.
        """
        if not is_split(order):
            return self.backward_s
        return tuple((each + self.overhead_s) / 2 for each in self.backward_s)


class StageMemory(NamedTuple):
    """What a slot of a stage needs, and what is missing there, in bytes; the stage's worst, by number."""

    slot: int
    needed_bytes: float
    missing_bytes: float


class BoundaryCost(NamedTuple):
    """A micro-batch's messages between two stages: how long they occupy both ends, and are on their way then.

    Activations go there, and their gradients come back.
    """

    there_s: float
    there_delay_s: float
    back_s: float
    back_delay_s: float


Boundary = tuple[BoundaryCost, ...]  # micro-batch m goes by the one with the number m mod their count


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
        self._memory: dict[tuple[PlanStage, int, tuple[int, ...]], StageMemory] = {}
        self._needed: dict[int, list[float]] = {}
        self._narrow = [0, *accumulate(layer.is_narrow for layer in layers)]
        self._sums = StageSums(setting)
        self._shares: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
        self._boundaries: dict[tuple[float, tuple[int, ...], tuple[int, ...], int], Boundary] = {}

    def of(self, stage: PlanStage, samples: int) -> StageCost | None:
        """For micro-batches of so many samples; None where a slot would have none, or may not take turns."""
        key = stage, samples
        if key not in self._stages:
            self._stages[key] = self._reckoned(stage, samples)
        return self._stages[key]

    def between(self, stage: PlanStage, after: PlanStage, samples: int) -> Boundary:
        """Of micro-batches of so many samples, from the slot whose turn each is to that of the next stage."""
        each = self._setting.layers[stage.end - 1].output_bytes
        key = each, stage.slots, after.slots, samples
        if key not in self._boundaries:
            self._boundaries[key] = self._boundary(samples * each, stage.slots, after.slots)
        return self._boundaries[key]

    def memory_of(self, stage: PlanStage, samples: int, held: tuple[int, ...]) -> StageMemory:
        """While activations of so many micro-batches wait for their backward passes.

        `held` has a number for each slot that takes turns; one for all where they share samples.
        """
        key = stage, samples, held
        if key not in self._memory:
            first, end, slots = stage
            found = []
            for slot, kept in zip(slots, self._held_samples(stage, samples, held), strict=True):
                needed = self.needed_before(kept)
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

    def breaks_of(self, slots: tuple[int, ...], parameters: int) -> tuple[float, float]:
        """How many are expected in a second, and what they lose of it; the state of several slots stays."""
        setting = self._setting
        breaks_per_s = sum(1 / setting.slots[slot].interruption_s for slot in slots)
        lost_s = setting.regroup_s
        if len(slots) == 1:
            lost_s += setting.snapshot_s / 2 + self._fetch_s(slots[0], parameters * setting.state_bytes)
        return breaks_per_s, breaks_per_s * lost_s

    def _is_shared(self, stage: PlanStage) -> bool:
        """Whether its slots share samples: it is the plan's only stage."""
        return stage.end - stage.first == len(self._setting.layers)

    def _held_samples(self, stage: PlanStage, samples: int, held: tuple[int, ...]) -> list[int]:
        if self._is_shared(stage):
            return [held[0] * share for share in self.shares_of(stage.slots, samples)]
        return [count * samples for count in held]

    def _reckoned(self, stage: PlanStage, samples: int) -> StageCost | None:
        first, end, slots = stage
        parameters, slots_of = self._parameters[end] - self._parameters[first], self._setting.slots
        if self._is_shared(stage):
            shares = self.shares_of(slots, samples)
            taken = [max(share / slots_of[slot].speed for share, slot in zip(shares, slots, strict=True))]
            sum_s = self._sums.shared_s(slots, parameters)
        else:
            shares = (samples,) * len(slots)
            taken = [samples / slots_of[slot].speed for slot in slots]
            sum_s = self._sums.turns_s(slots, parameters)
            if len(slots) > 1 and self._narrow[end] > self._narrow[first]:
                return None
        if min(shares) == 0:
            return None
        forward_s, backward_s = (
            before[end] - before[first] for before in (self._forward_s, self._backward_s)
        )
        breaks_per_s, break_loss = self.breaks_of(slots, parameters)
        overhead_s = self._setting.pass_overhead_s
        return StageCost(
            shares=shares,
            forward_s=tuple(overhead_s + each * forward_s for each in taken),
            backward_s=tuple(overhead_s + each * backward_s for each in taken),
            sum_s=sum_s,
            breaks_per_s=breaks_per_s,
            break_loss=break_loss,
            overhead_s=overhead_s,
        )

    def _fetch_s(self, slot: int, state_bytes: float) -> float:
        """To where this slot is, by the slowest way there: who replaces it may sit anywhere."""
        rates = self._setting.network.bits_per_s
        slowest = min((rates[other][slot] for other in range(len(rates)) if other != slot), default=0.0)
        return state_bytes * 8 / slowest if slowest else 0.0

    def _boundary(self, size_bytes: float, before: tuple[int, ...], after: tuple[int, ...]) -> Boundary:
        rates, delays = self._setting.network.bits_per_s, self._setting.network.delay_s
        count = math.lcm(len(before), len(after))
        ways = [(before[number % len(before)], after[number % len(after)]) for number in range(count)]
        return tuple(
            BoundaryCost(
                size_bytes * 8 / rates[i][j],
                delays[i][j],
                size_bytes * 8 / rates[j][i],
                delays[j][i],
            )
            for i, j in ways
        )
