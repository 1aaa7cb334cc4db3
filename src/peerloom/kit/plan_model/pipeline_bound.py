"""What no step of a pipeline can take less than, in any order of its passes: a bound for the search."""

from collections.abc import Sequence

from peerloom.kit.plan_model.pipeline_order import is_split
from peerloom.kit.plan_model.stage_costs import Boundary, BoundaryCost, StageCost


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
    backs_s = [one.pass_back_s(order) for one in stages]
    backwards = [min(each) for each in backs_s]
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
        for turn, (forward_s, backward_s) in enumerate(zip(cost.forward_s, backs_s[stage], strict=True)):
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
