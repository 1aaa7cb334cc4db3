"""What a plan is worth: samples finished a second, when slots break off now and then, and whether it fits."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from peerloom.kit.plan_model.pipeline_bound import least_step_s
from peerloom.kit.plan_model.pipeline_simulation import SimulatedPipeline, simulate_pipeline
from peerloom.kit.plan_model.placed_plan import PlacedPlan
from peerloom.kit.plan_model.plan_setting import PlanSetting
from peerloom.kit.plan_model.shard_costs import UnitParts, shard_costs
from peerloom.kit.plan_model.shard_simulation import least_shards_s, simulate_shards
from peerloom.kit.plan_model.stage_costs import Boundary, StageCost, StageCosts, StageMemory
from peerloom.kit.stage_ranks import StageRanks

# A bound and what it bounds add up the same seconds in another order.
ROUNDING = 1e-9


class CostedPlan(NamedTuple):
    """A plan, the costs of its stages and boundaries, what its stages' memory needs, and bounds.

    `missing_bytes` are of the slot that lacks most, 0 when it fits; no plan of these stages finishes more
    than `most_per_s` samples a second. Of shards, and only of them, `units` are what all go through.
    """

    plan: PlacedPlan
    stages: tuple[StageCost, ...]
    boundaries: tuple[Boundary, ...]
    memory: tuple[StageMemory, ...]
    missing_bytes: float
    most_per_s: float
    units: tuple[UnitParts, ...] = ()


class PlanPrediction(NamedTuple):
    """A plan's step, and the samples that are finished a second with interruptions counted in."""

    costed: CostedPlan
    finished_per_s: float
    simulated: SimulatedPipeline

    @property
    def plan(self) -> PlacedPlan:
        """Whose prediction this is."""
        return self.costed.plan

    @property
    def step_s(self) -> float:
        """Without interruptions."""
        return self.simulated.step_s


def costed_plan(plan: PlacedPlan, setting: PlanSetting, costs: StageCosts) -> CostedPlan | None:
    """A plan's costs; None where a slot would have no sample or no turn, or may take none."""
    if plan.is_sharded:
        return _costed_shards(plan, setting, costs)
    samples, ranks = setting.batch // plan.micro_batches, plan.ranks
    if max(ranks.widths) > plan.micro_batches:
        return None
    stages: list[StageCost] = []
    memory: list[StageMemory] = []
    held = held_in_stages(plan.order, ranks, plan.micro_batches)
    for stage, held_there in zip(plan.stages, held, strict=True):
        cost = costs.of(stage, samples)
        if cost is None:
            return None
        stages.append(cost)
        memory.append(costs.memory_of(stage, samples, held_there))
    ways = tuple(
        costs.between(stage, after, samples)
        for stage, after in zip(plan.stages, plan.stages[1:], strict=False)
    )
    most_per_s = finished_per_s(setting, stages, least_step_s(stages, ways, plan.micro_batches, plan.order))
    missing_bytes = max(one.missing_bytes for one in memory)
    return CostedPlan(plan, tuple(stages), ways, tuple(memory), missing_bytes, most_per_s)


def _costed_shards(plan: PlacedPlan, setting: PlanSetting, costs: StageCosts) -> CostedPlan | None:
    found = shard_costs(plan, setting, costs)
    if found is None:
        return None
    missing_bytes = max(one.missing_bytes for one in found.memory)
    least_s = least_shards_s(found.stages, found.ways, found.units)
    most_per_s = finished_per_s(setting, found.stages, least_s)
    return CostedPlan(plan, found.stages, found.ways, found.memory, missing_bytes, most_per_s, found.units)


@lru_cache(4096)
def held_in_stages(order: str, ranks: StageRanks, micro_batches: int) -> tuple[tuple[int, ...], ...]:
    """Of how many micro-batches each of a stage's workers holds activations at once, by stage."""
    return tuple(
        tuple(ranks.held_by(order, rank, micro_batches) for rank in ranks.of_stage(stage))
        for stage in range(ranks.stages)
    )


def predict_plan(costed: CostedPlan, setting: PlanSetting) -> PlanPrediction:
    """A step simulated, and what is finished a second."""
    simulated = simulated_with(costed, costed.stages, costed.boundaries)
    value = finished_per_s(setting, costed.stages, simulated.step_s)
    return PlanPrediction(costed, value, simulated)


def simulated_with(
    costed: CostedPlan, stages: tuple[StageCost, ...], ways: tuple[Boundary, ...]
) -> SimulatedPipeline:
    """A step of a plan, were its stages and ways these."""
    if costed.units:
        return simulate_shards(stages, ways, costed.units)
    return simulate_pipeline(stages, ways, costed.plan.micro_batches, costed.plan.order)


def finished_per_s(setting: PlanSetting, stages: Sequence[StageCost], step_s: float) -> float:
    """Samples a second that stay finished: batch / step / (1 + breaks a second x seconds lost by each).

    A break loses half a step on the average, the time in which all find together again, and with a stage's
    only slot its state: what was trained since the last copy of it, and the copy's way to another slot.
    """
    breaks_per_s = sum(stage.breaks_per_s for stage in stages)
    lost = breaks_per_s * step_s / 2 + sum(stage.break_loss for stage in stages)
    return setting.batch / step_s / (1 + lost)
