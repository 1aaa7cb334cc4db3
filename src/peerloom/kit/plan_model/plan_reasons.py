"""Why a plan is taken: what a step is made of stage by stage, what binds, and why another one loses."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from peerloom.kit.plan_model.pipeline_order import is_split
from peerloom.kit.plan_model.plan_search import PlanChoice
from peerloom.kit.plan_model.plan_setting import PlanSetting
from peerloom.kit.plan_model.plan_value import CostedPlan, PlanPrediction, held_in_stages, simulated_with
from peerloom.kit.plan_model.stage_costs import Boundary, BoundaryCost, StageCost
from peerloom.kit.quantity_texts import shown_bytes, shown_number, shown_s

_SEEN = 0.005  # of a step: what saves less at twice its speed doesn't bind


@dataclass(frozen=True)
class StageReport:
    """A stage's layers `first` to `last`, slots by name with their `shares` of a micro-batch, and its step.

    Seconds of a pass of one micro-batch, by the slowest slot; `sends_s` is how long the messages of one
    occupy it both ways, `sum_s` its gradients' sum. The busiest slot computes `computing_s` of a step, and
    waits for `idle_ratio` of it. `needed_bytes` of `memory_bytes` are those of the slot that has least left;
    a slot holds `held` micro-batches at most.
    """

    first: int
    last: int
    slots: tuple[str, ...]
    shares: tuple[int, ...]
    forward_s: float
    backward_s: float
    sends_s: float
    sum_s: float
    computing_s: float
    idle_ratio: float
    held: int
    needed_bytes: float
    memory_bytes: float


@dataclass(frozen=True)
class PlanReport:
    """A plan and its prediction in words and numbers; `binds` is what a step would gain most from."""

    kind: str
    order: str
    micro_batches: int
    step_s: float
    finished_per_s: float
    interrupted_ratio: float
    binds: str
    stages: tuple[StageReport, ...]


def report_of(found: PlanPrediction, setting: PlanSetting) -> PlanReport:
    """Of a plan's prediction."""
    plan = found.plan
    return PlanReport(
        kind=plan.kind,
        order=plan.order,
        micro_batches=plan.micro_batches,
        step_s=found.step_s,
        finished_per_s=found.finished_per_s,
        interrupted_ratio=interrupted_ratio(found, setting),
        binds=what_binds(found),
        stages=tuple(_stage_report(found, setting, number) for number in range(len(plan.stages))),
    )


def interrupted_ratio(found: PlanPrediction, setting: PlanSetting) -> float:
    """The part of the time that interruptions cost, from 0 to 1."""
    return max(0.0, 1 - found.finished_per_s * found.step_s / setting.batch)


def _stage_report(found: PlanPrediction, setting: PlanSetting, number: int) -> StageReport:
    plan, costed = found.plan, found.costed
    stage, cost, memory = plan.stages[number], costed.stages[number], costed.memory[number]
    turns, held = [1], 1
    if not plan.is_sharded:
        turns = [plan.ranks.turns_of(rank, plan.micro_batches) for rank in plan.ranks.of_stage(number)]
        held = max(held_in_stages(plan.order, plan.ranks, plan.micro_batches)[number])
    passes_back = 2 if is_split(plan.order) else 1
    backwards_s = [passes_back * each for each in cost.pass_back_s(plan.order)]
    passes_s = zip(turns, cost.forward_s, backwards_s, strict=True)
    computing_s = max(count * (forward_s + backward_s) for count, forward_s, backward_s in passes_s)
    return StageReport(
        first=stage.first,
        last=stage.end - 1,
        slots=tuple(setting.slots[slot].name for slot in stage.slots),
        shares=cost.shares,
        forward_s=max(cost.forward_s),
        backward_s=max(backwards_s),
        sends_s=_sends_s(costed, number),
        sum_s=cost.sum_s,
        computing_s=computing_s,
        idle_ratio=max(0.0, 1 - computing_s / found.step_s),
        held=held,
        needed_bytes=memory.needed_bytes,
        memory_bytes=setting.slots[memory.slot].memory_bytes,
    )


def _sends_s(costed: CostedPlan, number: int) -> float:
    """How long a micro-batch's messages occupy a stage both ways; a shard's values twice, and gradients."""
    on, before = costed.boundaries[number : number + 1], costed.boundaries[max(0, number - 1) : number]
    if costed.units:
        return sum(2 * way.there_s + way.back_s for way in on[0])
    there_s = max((way.there_s for boundary in on for way in boundary), default=0.0)
    return there_s + max((way.back_s for boundary in before for way in boundary), default=0.0)


def what_binds(found: PlanPrediction) -> str:
    """What, at twice its speed, would shorten a step most; each stage, way and sum is tried by itself."""
    tried = [(_step_s(found, stages, ways), name) for name, stages, ways in _relieved(found.costed)]
    step_s, name = min(tried, key=lambda one: one[0])
    gain = 1 - step_s / found.step_s
    if gain < _SEEN:
        return "nothing by itself: no stage, way or sum at twice its speed shortens a step"
    return f"{name}: at twice its speed a step would be {gain:.0%} shorter"


def _step_s(found: PlanPrediction, stages: tuple[StageCost, ...], ways: tuple[Boundary, ...]) -> float:
    return simulated_with(found.costed, stages, ways).step_s


_Relieved = tuple[str, tuple[StageCost, ...], tuple[Boundary, ...]]


def _relieved(costed: CostedPlan) -> Iterator[_Relieved]:
    stages, ways = costed.stages, costed.boundaries
    if costed.units:  # the slowest holds all up, so one at twice its speed alone says little
        yield "the computing", tuple(_faster(cost) for cost in stages), ways
        yield "the ways between the slots", stages, tuple(_faster_way(way) for way in ways)
        return
    for number, cost in enumerate(stages):
        yield f"the computing of stage {number}", _with(stages, number, _faster(cost)), ways
        if cost.sum_s:
            halved = cost._replace(sum_s=cost.sum_s / 2)
            yield f"the sum of stage {number}'s gradients", _with(stages, number, halved), ways
    for number, way in enumerate(ways):
        yield (
            f"the way between stages {number} and {number + 1}",
            stages,
            (*ways[:number], _faster_way(way), *ways[number + 1 :]),
        )


def _faster(cost: StageCost) -> StageCost:
    return cost._replace(
        forward_s=_halved(cost.forward_s),
        backward_s=_halved(cost.backward_s),
        overhead_s=cost.overhead_s / 2,
    )


def _faster_way(way: Boundary) -> Boundary:
    return tuple(BoundaryCost(*_halved(one)) for one in way)


def _halved(seconds: Iterable[float]) -> tuple[float, ...]:
    return tuple(one / 2 for one in seconds)


def _with(stages: tuple[StageCost, ...], number: int, cost: StageCost) -> tuple[StageCost, ...]:
    return (*stages[:number], cost, *stages[number + 1 :])


def why_chosen(choice: PlanChoice, setting: PlanSetting) -> str:
    """What is predicted for the plan, of how many, and what more memory would give."""
    best = choice.chosen
    of_all = (
        "no plan finishes more"
        if choice.is_best_of_all
        else f"the best of {choice.evaluated:,} plans that were looked at, and others may be better"
    )
    text = (
        f"{shown_number(best.finished_per_s)} samples a second are predicted for it, in steps of "
        f"{shown_s(best.step_s)}; {of_all}"
    )
    lost = interrupted_ratio(best, setting)
    return text + (f"; interruptions cost {lost:.1%} of the time" if lost >= 0.0005 else "")


def why_memory_binds(choice: PlanChoice, setting: PlanSetting) -> str:
    """What a plan would finish that doesn't fit; "" when more memory wouldn't help."""
    more = choice.with_more_memory
    if more is None:
        return ""
    number = max(range(len(more.costed.memory)), key=lambda one: more.costed.memory[one].missing_bytes)
    memory = more.costed.memory[number]
    gain = more.finished_per_s / choice.chosen.finished_per_s - 1
    return (
        f"with {shown_bytes(memory.missing_bytes)} more on {setting.slots[memory.slot].name} "
        f"a plan of the kind {more.plan.kind} would finish {gain:.0%} more"
    )


def why_it_loses(other: PlanPrediction, best: PlanPrediction, setting: PlanSetting) -> str:
    """What makes another plan finish less."""
    less = 1 - other.finished_per_s / best.finished_per_s
    told = f"{less:.1%} less" if less >= 0.0005 else "as much"
    if other.step_s <= best.step_s:
        lost, ours = interrupted_ratio(other, setting), interrupted_ratio(best, setting)
        if lost - ours >= 0.0005:
            return f"{told}: interruptions cost {lost:.1%} of its time, {ours:.1%} with the plan taken"
        return f"{told}, on more slots or in more stages" if less < 0.0005 else told
    return (
        f"{told}; what binds is {what_binds(other)}"
        if other.plan.kind != "single"
        else f"{told}: no other slot shares its work"
    )


def why_too_large(costed: CostedPlan, setting: PlanSetting) -> str:
    """What the nearest plan of a kind lacks."""
    number = max(range(len(costed.memory)), key=lambda one: costed.memory[one].missing_bytes)
    stage, memory = costed.plan.stages[number], costed.memory[number]
    return (
        f"doesn't fit: layers {stage.first} to {stage.end - 1} would need {shown_bytes(memory.needed_bytes)} "
        f"on {setting.slots[memory.slot].name}, {shown_bytes(memory.missing_bytes)} more than it has"
    )
