"""Plans that differ from a plan by one change: a boundary, a slot's place, a stage, the micro-batches."""

from collections.abc import Iterator, Sequence

from peerloom.kit.plan_model.placed_plan import PlacedPlan, PlanStage
from peerloom.kit.plan_model.plan_setting import PlanSetting
from peerloom.kit.plan_model.plan_space import micro_batch_counts

_SHIFTS = (1, -1, 2, -2, 4, -4, 8, -8)


def neighbours(plan: PlacedPlan, setting: PlanSetting, orders: Sequence[str]) -> Iterator[PlacedPlan]:
    """Each of them once, as far as it is a plan: no stage without layers or slots."""
    seen = {plan}
    for one in _changed(plan, setting, orders):
        if one not in seen:
            seen.add(one)
            yield one


def _changed(plan: PlacedPlan, setting: PlanSetting, orders: Sequence[str]) -> Iterator[PlacedPlan]:
    for order in orders:
        for count in micro_batch_counts(setting.batch):
            yield PlacedPlan(plan.stages, count, order)
    stages = plan.stages
    unused = tuple(slot for slot in range(len(setting.slots)) if slot not in set(plan.slots))
    for changed in (
        *_shifted(stages),
        *_moved(stages, unused),
        *_exchanged(stages, unused),
        *_merged(stages),
        *_split(stages, unused),
    ):
        yield PlacedPlan(changed, plan.micro_batches, plan.order)


_Stages = tuple[PlanStage, ...]


def _shifted(stages: _Stages) -> Iterator[_Stages]:
    for number in range(len(stages) - 1):
        left, right = stages[number : number + 2]
        for shift in _SHIFTS:
            edge = left.end + shift
            if left.first < edge < right.end:
                pair = left._replace(end=edge), right._replace(first=edge)
                yield (*stages[:number], *pair, *stages[number + 2 :])


def _with(stages: _Stages, number: int, slots: Sequence[int]) -> _Stages:
    return (*stages[:number], stages[number]._replace(slots=tuple(sorted(slots))), *stages[number + 1 :])


def _moved(stages: _Stages, unused: Sequence[int]) -> Iterator[_Stages]:
    """A slot leaves a wide stage, or joins another one."""
    for number, stage in enumerate(stages):
        for slot in stage.slots if len(stage.slots) > 1 else ():
            without = _with(stages, number, [one for one in stage.slots if one != slot])
            yield without
            for other in range(len(stages)):
                if other != number:
                    yield _with(without, other, (*stages[other].slots, slot))
        for slot in unused:
            yield _with(stages, number, (*stage.slots, slot))


def _exchanged(stages: _Stages, unused: Sequence[int]) -> Iterator[_Stages]:
    for number, stage in enumerate(stages):
        for slot in stage.slots:
            rest = [one for one in stage.slots if one != slot]
            for spare in unused:
                yield _with(stages, number, (*rest, spare))
            for other in range(number + 1, len(stages)):
                for theirs in stages[other].slots:
                    kept = [one for one in stages[other].slots if one != theirs]
                    yield _with(_with(stages, number, (*rest, theirs)), other, (*kept, slot))


def _merged(stages: _Stages) -> Iterator[_Stages]:
    for number in range(len(stages) - 1):
        left, right = stages[number : number + 2]
        for slots in (tuple(sorted(left.slots + right.slots)), left.slots, right.slots):
            one = PlanStage(left.first, right.end, slots)
            yield (*stages[:number], one, *stages[number + 2 :])


def _split(stages: _Stages, unused: Sequence[int]) -> Iterator[_Stages]:
    """A stage in two at its middle: a wide one with half its slots each, or an unused slot takes one half."""
    for number, (first, end, slots) in enumerate(stages):
        middle, half = (first + end) // 2, len(slots) // 2
        if middle == first:
            continue
        halves = [(slots[:half], slots[half:])] if half else []
        for one in unused:
            halves += [(slots, (one,)), ((one,), slots)]
        for left, right in halves:
            pair = PlanStage(first, middle, left), PlanStage(middle, end, right)
            yield (*stages[:number], *pair, *stages[number + 1 :])
