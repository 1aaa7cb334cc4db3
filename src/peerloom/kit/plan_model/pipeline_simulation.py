"""A step of a pipeline, event by event: what each stage's workers compute and send, and when."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from peerloom.kit.plan_model.pipeline_order import PassKind, PipelinePass, is_split
from peerloom.kit.plan_model.stage_costs import Boundary, BoundaryCost, StageCost
from peerloom.kit.stage_ranks import StageRanks


class TimedPass(NamedTuple):
    """A pass and its seconds since the step began; `worker` is which of its stage's, from 0."""

    stage: int
    worker: int
    micro_batch: int
    kind: PassKind
    start_s: float
    end_s: float


class TimedSum(NamedTuple):
    """When a stage's gradients are summed, in seconds since the step began; no time in a stage of one."""

    start_s: float
    end_s: float


class WorkerOrder(NamedTuple):
    """A worker's place, and its passes one after the other."""

    stage: int
    turn: int
    passes: tuple[PipelinePass, ...]


class SimulatedPipeline(NamedTuple):
    """A step's seconds, each stage's sum, and by worker the order of its passes and when each is made."""

    step_s: float
    sums: tuple[TimedSum, ...]
    orders: tuple[WorkerOrder, ...]
    spans_s: list[list[tuple[float, float]]]

    @property
    def passes(self) -> tuple[TimedPass, ...]:
        """All, in the order of each worker."""
        return tuple(
            TimedPass(stage, turn, one.micro_batch, one.kind, *span)
            for (stage, turn, passes), spans in zip(self.orders, self.spans_s, strict=True)
            for one, span in zip(passes, spans, strict=True)
        )


@lru_cache(2048)
def _orders_of(order: str, widths: tuple[int, ...], micro_batches: int) -> tuple[WorkerOrder, ...]:
    ranks = StageRanks(widths)
    return tuple(
        WorkerOrder(
            ranks.stage_of(rank), ranks.turn_of(rank), tuple(ranks.passes_of(order, rank, micro_batches))
        )
        for rank in range(ranks.workers)
    )


def simulate_pipeline(
    stages: Sequence[StageCost], boundaries: Sequence[Boundary], micro_batches: int, order: str
) -> SimulatedPipeline:
    """Workers compute while they send and receive; what one sends leaves in the order in which it is made.

    A pass begins when its worker is free and the micro-batch's activations, or their gradients, have arrived:
    from a neighbouring stage one after the other, in the order of the micro-batches. A stage sums its
    gradients once its workers have made their passes and their messages have left. Passes and messages have
    an order that is known beforehand, so nothing overtakes, and nothing shorter makes a step longer.
    """
    last, widths = len(stages) - 1, tuple(len(stage.forward_s) for stage in stages)
    orders = _orders_of(order, widths, micro_batches)
    # When a micro-batch's activations have left for a stage, and the gradients of what it made of them.
    there: list[list[float | None]] = [[None] * micro_batches for _ in stages]
    back: list[list[float | None]] = [[None] * micro_batches for _ in stages]
    count = len(orders)
    free_s, sent_s, done = [0.0] * count, [0.0] * count, [0] * count
    got_there_s, got_back_s = [0.0] * count, [0.0] * count
    backward_s = [one.half_backward_s if is_split(order) else one.backward_s for one in stages]
    spans_s: list[list[tuple[float, float]]] = [[] for _ in orders]
    changed = True
    while changed:
        changed = False
        for rank, (stage, turn, mine) in enumerate(orders):
            before, after = boundaries[stage - 1] if stage else (), boundaries[stage] if stage < last else ()
            while done[rank] < len(mine):
                _, number, kind = mine[done[rank]]
                start_s = free_s[rank]
                is_forward, goes_back = kind is PassKind.FORWARD, kind is PassKind.BACKWARD
                if is_forward and stage:
                    left_s, way = there[stage][number], before[number % len(before)]
                    if left_s is None:
                        break
                    got_there_s[rank] = max(left_s, got_there_s[rank] + way.there_s)
                    start_s = max(start_s, got_there_s[rank] + way.there_delay_s)
                elif goes_back and stage < last:
                    left_s, way = back[stage][number], after[number % len(after)]
                    if left_s is None:
                        break
                    got_back_s[rank] = max(left_s, got_back_s[rank] + way.back_s)
                    start_s = max(start_s, got_back_s[rank] + way.back_delay_s)
                end_s = start_s + (stages[stage].forward_s if is_forward else backward_s[stage])[turn]
                free_s[rank] = end_s
                spans_s[rank].append((start_s, end_s))
                done[rank] += 1
                changed = True
                if is_forward and stage < last:
                    sent_s[rank] = max(end_s, sent_s[rank]) + after[number % len(after)].there_s
                    there[stage + 1][number] = sent_s[rank]
                elif goes_back and stage:
                    sent_s[rank] = max(end_s, sent_s[rank]) + before[number % len(before)].back_s
                    back[stage - 1][number] = sent_s[rank]
    starts_s = [0.0] * len(stages)
    for rank, (stage, _, _) in enumerate(orders):
        starts_s[stage] = max(starts_s[stage], free_s[rank], sent_s[rank])
    sums = tuple(
        TimedSum(start_s, start_s + cost.sum_s) for start_s, cost in zip(starts_s, stages, strict=True)
    )
    return SimulatedPipeline(max(one.end_s for one in sums), sums, orders, spans_s)


def least_step_s(
    stages: Sequence[StageCost], boundaries: Sequence[Boundary], micro_batches: int, order: str
) -> float:
    """A step can't take less, in any order of passes, where backward passes are split as `order` has it.

    For each worker: the way of its first micro-batch to it; all its passes, or the longest of its passes and
    messages as often as it has micro-batches and one's way to the end and back, or all that it sends both
    ways; and what its last micro-batch has to do from there. Ways to and from it are the shortest.
    """
    last, halves = len(stages) - 1, is_split(order)
    ways = [_least_way(boundary) for boundary in boundaries]
    forwards = [min(one.forward_s) for one in stages]
    backwards = [min(one.half_backward_s if halves else one.backward_s) for one in stages]
    # After a backward pass: gradients of weights, and what the stages before do with those that go back.
    own_s = [halves * least_s + one.sum_s for least_s, one in zip(backwards, stages, strict=True)]
    tails = [own_s[0]]
    for stage in range(1, last + 1):
        way = ways[stage - 1]
        way_s = way.back_s + way.back_delay_s + backwards[stage - 1]
        tails.append(max(own_s[stage], way_s + tails[stage - 1]))
    beyond_s = [0.0] * (last + 1)  # from the end of a forward pass until the gradients are there
    for stage in range(last - 1, -1, -1):
        beyond_s[stage] = sum(ways[stage]) + forwards[stage + 1] + backwards[stage + 1] + beyond_s[stage + 1]
    least_s, head_s = 0.0, 0.0
    paces: list[tuple[int, float]] = []  # of the stages before: workers, and seconds between two of one
    for stage, cost in enumerate(stages):
        on, before = ways[stage] if stage < last else _NO_WAY, ways[stage - 1] if stage else _NO_WAY
        slowest_way_s = max(on.there_s, on.back_s, before.there_s, before.back_s)
        sends_s = on.there_s + before.back_s
        after_s = cost.sum_s
        if stage:
            after_s = max(after_s, before.back_delay_s + backwards[stage - 1] + tails[stage - 1])
        width = len(cost.forward_s)
        backs_s = cost.half_backward_s if halves else cost.backward_s
        for turn, (forward_s, backward_s) in enumerate(zip(cost.forward_s, backs_s, strict=True)):
            count = (micro_batches - turn + width - 1) // width
            first_s = head_s
            if turn:
                first_s += max([turn // workers * pace_s for workers, pace_s in paces], default=0.0)
            once_s = forward_s + backward_s
            queued_s = (count - 1) * max(forward_s, backward_s, slowest_way_s) + once_s + beyond_s[stage]
            rest_s = max(count * once_s, queued_s) + tails[stage]
            rest_s = max(rest_s, count * (once_s + halves * backward_s) + cost.sum_s)
            least_s = max(least_s, first_s + rest_s, first_s + forward_s + count * sends_s + after_s)
        paces.append((width, max(forwards[stage], on.there_s)))
        head_s += forwards[stage] + on.there_s + on.there_delay_s
    return least_s


_NO_WAY = BoundaryCost(0.0, 0.0, 0.0, 0.0)


def _least_way(boundary: Boundary) -> BoundaryCost:
    if len(boundary) == 1:
        return boundary[0]
    return BoundaryCost(*(min(each) for each in zip(*boundary, strict=True)))
