"""A step of a pipeline, event by event: what each stage computes and sends, and when."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from peerloom.kit.plan_model.pipeline_order import PipelinePass, passes_of
from peerloom.kit.plan_model.stage_costs import BoundaryCost, StageCost


class TimedPass(NamedTuple):
    """A pass and its seconds since the step began."""

    stage: int
    micro_batch: int
    is_forward: bool
    start_s: float
    end_s: float


class SimulatedPipeline(NamedTuple):
    """A step's seconds, its passes in the order of each stage, and when each stage's gradients are summed."""

    step_s: float
    passes: tuple[TimedPass, ...]
    summed_s: tuple[float, ...]


@lru_cache(2048)
def _order_of(order: str, stage: int, stages: int, micro_batches: int) -> tuple[PipelinePass, ...]:
    return tuple(passes_of(order, stage, stages, micro_batches))


def simulate_pipeline(
    stages: Sequence[StageCost], boundaries: Sequence[BoundaryCost], micro_batches: int, order: str
) -> SimulatedPipeline:
    """Stages compute while they send and receive; what a stage sends leaves in the order in which it is made.

    A pass begins when the stage is free and the micro-batch's activations, or their gradients, have arrived.
    Each stage's passes and messages have an order that is known beforehand, so nothing overtakes, and no
    shorter pass or message makes a step longer.
    """
    count = len(stages)
    orders = [_order_of(order, stage, count, micro_batches) for stage in range(count)]
    # When a micro-batch's activations are at a stage, and when the gradients of what it made of them are.
    there: list[list[float | None]] = [[None] * micro_batches for _ in range(count)]
    back: list[list[float | None]] = [[None] * micro_batches for _ in range(count)]
    there[0] = [0.0] * micro_batches
    free_s, link_free_s, done = [0.0] * count, [0.0] * count, [0] * count
    passes: list[list[TimedPass]] = [[] for _ in range(count)]
    changed = True
    while changed:
        changed = False
        for stage in range(count):
            cost, mine = stages[stage], orders[stage]
            while done[stage] < len(mine):
                _, number, is_forward = mine[done[stage]]
                ready_s = (there if is_forward else back)[stage][number]
                if ready_s is None:
                    break
                start_s = max(ready_s, free_s[stage])
                end_s = start_s + (cost.forward_s if is_forward else cost.backward_s)
                free_s[stage] = end_s
                passes[stage].append(TimedPass(stage, number, is_forward, start_s, end_s))
                done[stage] += 1
                changed = True
                if is_forward and stage == count - 1:
                    back[stage][number] = end_s
                elif is_forward:
                    boundary = boundaries[stage]
                    link_free_s[stage] = max(end_s, link_free_s[stage]) + boundary.there_s
                    there[stage + 1][number] = link_free_s[stage] + boundary.there_delay_s
                elif stage:
                    boundary = boundaries[stage - 1]
                    link_free_s[stage] = max(end_s, link_free_s[stage]) + boundary.back_s
                    back[stage - 1][number] = link_free_s[stage] + boundary.back_delay_s
    summed_s = tuple(end_s + cost.sum_s for end_s, cost in zip(free_s, stages, strict=True))
    return SimulatedPipeline(max(summed_s), tuple(one for mine in passes for one in mine), summed_s)


def least_step_s(
    stages: Sequence[StageCost], boundaries: Sequence[BoundaryCost], micro_batches: int
) -> float:
    """A step can't take less, in any order.

    For each stage: a first micro-batch's way to it; all its passes, or all its forward passes or messages and
    the last micro-batch's way to the end and back, or all that it sends both ways; and what the last
    micro-batch has to do from there.
    """
    last = len(stages) - 1
    tails = [stages[0].sum_s]
    for stage in range(1, last + 1):
        boundary = boundaries[stage - 1]
        way_s = boundary.back_s + boundary.back_delay_s + stages[stage - 1].backward_s
        tails.append(max(stages[stage].sum_s, way_s + tails[stage - 1]))
    around_s = [0.0] * (last + 1)  # a micro-batch's way from its forward to the end of its backward pass
    for stage in range(last, -1, -1):
        around_s[stage] = stages[stage].forward_s + stages[stage].backward_s
        if stage < last:
            around_s[stage] += sum(boundaries[stage]) + around_s[stage + 1]
    least_s, head_s, more = 0.0, 0.0, micro_batches - 1
    for stage, cost in enumerate(stages):
        there_s, there_delay_s = boundaries[stage][:2] if stage < last else (0.0, 0.0)
        passes_s = micro_batches * (cost.forward_s + cost.backward_s)
        queued_s = more * max(cost.forward_s, there_s) + around_s[stage]
        least_s = max(least_s, head_s + max(passes_s, queued_s) + tails[stage])
        if stage:
            before = boundaries[stage - 1]
            sends_s = micro_batches * (there_s + before.back_s) + before.back_delay_s
            after_s = stages[stage - 1].backward_s + tails[stage - 1]
            least_s = max(least_s, head_s + cost.forward_s + sends_s + after_s)
        head_s += cost.forward_s + there_s + there_delay_s
    return least_s
