"""Passes in their order, and steps of small pipelines, reckoned by hand."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from peerloom.errors import InvalidArgumentError
from peerloom.kit.plan_model.pipeline_bound import least_step_s
from peerloom.kit.plan_model.pipeline_order import (
    GPIPE,
    ONE_F_ONE_B,
    PIPELINE_ORDERS,
    ZB_H1,
    ZB_H2,
    PassKind,
    PipelinePass,
    held_micro_batches,
    is_split,
    passes_of,
)
from peerloom.kit.plan_model.pipeline_simulation import simulate_pipeline
from peerloom.kit.plan_model.stage_costs import Boundary, BoundaryCost, StageCost

AT_ONCE = (BoundaryCost(0.0, 0.0, 0.0, 0.0),)


def stage(forward_s: float = 1.0, backward_s: float = 2.0, sum_s: float = 0.0) -> StageCost:
    return StageCost((1,), (forward_s,), (backward_s,), sum_s, 0.0, 0.0)


def words(passes: list[PipelinePass]) -> str:
    return " ".join(f"{one.kind.name[0]}{one.micro_batch}" for one in passes)


def test_gpipe_makes_all_forward_passes_first() -> None:
    assert words(list(passes_of(GPIPE, 0, 2, 3))) == "F0 F1 F2 B0 B1 B2"
    assert words(list(passes_of(GPIPE, 1, 2, 3))) == "F0 F1 F2 B0 B1 B2"


def test_1f1b_goes_back_as_soon_as_the_last_stage_has_answered() -> None:
    assert words(list(passes_of(ONE_F_ONE_B, 0, 3, 4))) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert words(list(passes_of(ONE_F_ONE_B, 1, 3, 4))) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert words(list(passes_of(ONE_F_ONE_B, 2, 3, 4))) == "F0 B0 F1 B1 F2 B2 F3 B3"
    assert words(list(passes_of(ONE_F_ONE_B, 0, 3, 2))) == "F0 F1 B0 B1"


def test_gradients_of_weights_are_behind_by_as_many_micro_batches_as_there_are_stages_before() -> None:
    assert words(list(passes_of(ZB_H1, 0, 3, 4))) == "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3"
    assert words(list(passes_of(ZB_H1, 1, 3, 4))) == "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3"
    assert words(list(passes_of(ZB_H1, 2, 3, 4))) == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3"
    assert words(list(passes_of(ZB_H2, 2, 3, 4))) == "F0 B0 F1 B1 F2 B2 F3 B3 W0 W1 W2 W3"
    assert words(list(passes_of(ZB_H2, 1, 3, 4))) == "F0 F1 F2 B0 F3 B1 B2 W0 B3 W1 W2 W3"
    assert words(list(passes_of(ZB_H1, 1, 2, 1))) == "F0 B0 W0"


@given(some.sampled_from(list(PIPELINE_ORDERS)), some.integers(1, 6), some.integers(1, 12), some.data())
def test_each_pass_is_made_once_and_as_much_is_held_as_is_told(
    order: str, stages: int, micro_batches: int, data: some.DataObject
) -> None:
    number = data.draw(some.integers(0, stages - 1))
    held, most, seen = set(), 0, []
    kinds = list(PassKind) if is_split(order) else [PassKind.FORWARD, PassKind.BACKWARD]
    for one in passes_of(order, number, stages, micro_batches):
        assert one.stage == number
        seen.append((one.micro_batch, one.kind.value))
        if one.kind is PassKind.FORWARD:
            held.add(one.micro_batch)
        elif one.kind is kinds[-1]:
            held.remove(one.micro_batch)  # it fails for one that hasn't been forward
        if one.kind is PassKind.WEIGHTS:
            assert (one.micro_batch, "backward") in seen
        most = max(most, len(held))
    assert sorted(seen) == sorted((number, kind.value) for number in range(micro_batches) for kind in kinds)
    assert most == held_micro_batches(order, number, stages, micro_batches)


def test_an_order_or_a_stage_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="did you mean 1f1b"):
        list(passes_of("1f1p", 0, 1, 1))
    with pytest.raises(InvalidArgumentError, match="from 0 to 1"):
        list(passes_of(GPIPE, 2, 2, 1))
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        list(passes_of(GPIPE, 0, 2, 0))


def check_even_stages(order: str, stages: int, micro_batches: int, step_s: float) -> None:
    """Without ways such a step takes so long, and no plan of these stages less."""
    even = [stage()] * stages, [AT_ONCE] * (stages - 1), micro_batches, order
    found = simulate_pipeline(*even)
    assert found.step_s == pytest.approx(step_s)
    assert len(found.passes) == (3 if is_split(order) else 2) * stages * micro_batches
    assert least_step_s(*even) == pytest.approx(found.step_s)


@pytest.mark.parametrize("order", [GPIPE, ONE_F_ONE_B])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (1, 5), (2, 3), (4, 8), (5, 2)])
def test_equal_stages_without_ways_take_their_bubble_and_no_more(
    order: str, stages: int, micro_batches: int
) -> None:
    """(M + K - 1) (f + b), of which each stage computes M (f + b)."""
    check_even_stages(order, stages, micro_batches, (micro_batches + stages - 1) * 3)


@pytest.mark.parametrize("order", [ZB_H1, ZB_H2])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (1, 5), (2, 3), (4, 8), (5, 9)])
def test_split_backward_passes_leave_the_bubble_of_the_first_forward_passes(
    order: str, stages: int, micro_batches: int
) -> None:
    """M (f + b) + (K - 1) f: the last stage can't begin sooner, and then computes all the time."""
    check_even_stages(order, stages, micro_batches, micro_batches * 3 + stages - 1)


def test_the_deeper_order_hides_ways_that_take_as_long_as_passes() -> None:
    """Four stages, eight micro-batches: a message is on its way for 1 s, as long as a pass.

    The last stage gets its first one at 6, computes for 24 s, and needs nothing more: 30. With half as many
    forward passes first each stage waits for answers; without a pass for the weights the answers come later.
    """
    far = (BoundaryCost(0.0, 1.0, 0.0, 1.0),)
    steps_s = {
        order: simulate_pipeline([stage()] * 4, [far] * 3, 8, order).step_s for order in PIPELINE_ORDERS
    }
    assert steps_s[ZB_H2] == 30
    assert steps_s == {ONE_F_ONE_B: 49, GPIPE: 39, ZB_H1: 41, ZB_H2: 30}


WAY = (BoundaryCost(0.5, 0.25, 0.5, 0.25),)


def test_two_micro_batches_over_a_slow_way() -> None:
    """Stage 0 is forward from 0 to 2. Activations arrive at 1.75 and 2.75.

    Stage 1: F0 from 1.75, B0 from 2.75, F1 from 4.75, B1 from 5.75 to 7.75.
    Gradients arrive at 4.75 + 0.75 = 5.5 and 7.75 + 0.75 = 8.5; stage 0 is back at 7.5 and at 10.5.
    """
    found = simulate_pipeline([stage(), stage()], [WAY], 2, ONE_F_ONE_B)
    assert found.step_s == 10.5
    assert [(one.stage, one.start_s) for one in found.passes] == [
        (0, 0.0),
        (0, 1.0),
        (0, 5.5),
        (0, 8.5),
        (1, 1.75),
        (1, 2.75),
        (1, 4.75),
        (1, 5.75),
    ]


def test_gpipe_waits_less_for_a_slow_way() -> None:
    """With three micro-batches 1F1B sends the third one on at 8.5, when the first one's gradients are back.

    It is at stage 1 at 9.25, back from it at 12.25, at stage 0 at 13 and through at 15. GPipe has all three
    at stage 1 at 3.75, so that it computes without a break from 1.75 to 1.75 + 9 = 10.75; the last gradients
    arrive at 11.5, when stage 0 has just ended the ones before, and it ends at 13.5.
    """
    stages = [stage(), stage()]
    assert simulate_pipeline(stages, [WAY], 3, ONE_F_ONE_B).step_s == 15
    assert simulate_pipeline(stages, [WAY], 3, GPIPE).step_s == 13.5


def test_messages_queue_on_a_way_that_is_slower_than_the_stages() -> None:
    """Activations of 4 s each leave from 1 on, one after the other: the last of three is there at 13."""
    slow = (BoundaryCost(4.0, 0.0, 0.0, 0.0),)
    found = simulate_pipeline([stage(), stage()], [slow], 3, GPIPE)
    assert [one.start_s for one in found.passes if one.stage == 1 and one.kind is PassKind.FORWARD] == [
        5.0,
        9.0,
        13.0,
    ]
    assert found.step_s == 13 + 1 + 3 * 2 + 2  # its forward, three backward passes, and the last one's here


def test_what_goes_back_and_what_goes_on_share_a_link() -> None:
    """A middle stage sends activations on and gradients back by one link.

    Its forward passes end at 2 and 3, and messages of 6 s leave one after the other. The first is there at 8;
    the last stage is back with it at 11, the middle one at 13, when the second one has 1 s to go. Beside the
    gradients, of 4 s, that takes 2 s: it is there at 15, and these are at stage 0 at 18. The second one's are
    at the middle one at 18, at stage 0 at 24, done at 26.
    """
    on, back = (BoundaryCost(6.0, 0.0, 0.0, 0.0),), (BoundaryCost(0.0, 0.0, 4.0, 0.0),)
    found = simulate_pipeline([stage()] * 3, [back, on], 2, ONE_F_ONE_B)
    forwards = [one.start_s for one in found.passes if one.stage == 2 and one.kind is PassKind.FORWARD]
    assert forwards == [8.0, 15.0]
    backwards = [one.start_s for one in found.passes if one.stage == 0 and one.kind is PassKind.BACKWARD]
    assert backwards == [18.0, 24.0]
    assert found.step_s == 26


def test_a_step_ends_when_the_last_stage_has_its_sum() -> None:
    found = simulate_pipeline([stage(), stage(sum_s=10.0)], [AT_ONCE], 1, GPIPE)
    assert found.sums == ((6.0, 6.0), (4.0, 14.0))
    assert found.step_s == 14


def test_the_workers_of_a_stage_take_turns_and_sum_when_the_last_is_done() -> None:
    """Stage 0 has two workers of 2 s and 4 s a pass, stage 1 one of 1 s and 2 s; all ways take nothing.

    Worker 0 is forward with micro-batches 0 and 2 at 2 and 4, worker 1 with 1 and 3. Stage 1: F0 2-3, B0 3-5,
    F1 5-6, B1 6-8, F2 8-9, B2 9-11, F3 11-12, B3 12-14. Back at stage 0: B0 5-9, B2 11-15; B1 8-12, B3 14-18.
    Then the sum of 3 s.
    """
    wide = StageCost((1, 1), (2.0, 2.0), (4.0, 4.0), 3.0, 0.0, 0.0)
    found = simulate_pipeline([wide, stage()], [AT_ONCE * 2], 4, ONE_F_ONE_B)
    starts = {
        (one.stage, one.worker, one.micro_batch): one.start_s
        for one in found.passes
        if one.kind is PassKind.BACKWARD
    }
    assert starts == {
        (0, 0, 0): 5,
        (0, 1, 1): 8,
        (0, 0, 2): 11,
        (0, 1, 3): 14,
        (1, 0, 0): 3,
        (1, 0, 1): 6,
        (1, 0, 2): 9,
        (1, 0, 3): 12,
    }
    assert found.sums == ((18.0, 21.0), (14.0, 14.0))
    assert found.step_s == 21


def test_who_hears_from_two_at_once_waits_twice_as_long_for_each() -> None:
    """Both workers of stage 0 send for 3 s from 1 on to one: both are there at 7.

    Stage 1: F0 7-8, F1 8-9, B0 9-11, B1 11-13. Back at stage 0 at once, where B1 takes from 13 to 15; a sum
    waits for messages that leave, not for those that come.
    """
    wide = StageCost((1, 1), (1.0, 1.0), (2.0, 2.0), 1.0, 0.0, 0.0)
    way = BoundaryCost(3.0, 0.0, 0.0, 0.0)
    found = simulate_pipeline([wide, stage()], [(way, way)], 2, GPIPE)
    assert [one.start_s for one in found.passes if one.stage == 1] == [7, 8, 9, 11]
    assert found.sums[0] == (15, 16)


def test_a_wide_stage_sums_once_its_messages_have_left() -> None:
    """Stage 1 has two workers: F0 1-2, F1 2-3, B0 2-4, B1 3-5. Their gradients take 6 s to that of stage 0.

    The first has 5 s to go when the second begins, at 5: both at half the speed, it is there at 15, when the
    second has 1 s to go.
    """
    wide = StageCost((1, 1), (1.0, 1.0), (2.0, 2.0), 1.0, 0.0, 0.0)
    way = BoundaryCost(0.0, 0.0, 6.0, 0.0)
    found = simulate_pipeline([stage(), wide], [(way, way)], 2, GPIPE)
    assert found.sums[1] == (16, 17)
    assert found.step_s == 19


seconds = some.floats(0, 10)


@some.composite
def costs_of_stages(draw: some.DrawFn) -> tuple[list[StageCost], list[Boundary]]:
    """Up to four stages of up to three workers, and the ways between them."""
    widths = draw(some.lists(some.integers(1, 3), min_size=1, max_size=4))
    times = {width: some.tuples(*[seconds] * width) for width in (1, 2, 3)}
    stages = [
        StageCost((1,) * width, draw(times[width]), draw(times[width]), draw(seconds), 0.0, 0.0)
        for width in widths
    ]
    way = some.builds(BoundaryCost, seconds, seconds, seconds, seconds)
    boundaries = [tuple(draw(way) for _ in range(math.lcm(*pair))) for pair in pairwise(widths)]
    return stages, boundaries


@given(costs_of_stages(), some.integers(3, 8), some.sampled_from(list(PIPELINE_ORDERS)))
def test_no_step_is_below_the_bound_and_each_pass_has_what_it_needs(
    costs: tuple[list[StageCost], list[Boundary]], micro_batches: int, order: str
) -> None:
    stages, ways = costs
    found = simulate_pipeline(stages, ways, micro_batches, order)
    assert least_step_s(stages, ways, micro_batches, order) <= found.step_s * (1 + 1e-9)
    ends = {(one.stage, one.micro_batch, one.kind): one.end_s for one in found.passes}
    assert len(ends) == len(found.passes) == len(stages) * micro_batches * (3 if is_split(order) else 2)
    for one in found.passes:
        if one.kind is PassKind.FORWARD and one.stage:
            way = ways[one.stage - 1]
            taken = way[one.micro_batch % len(way)]
            needed_s = ends[one.stage - 1, one.micro_batch, one.kind] + taken.there_s + taken.there_delay_s
        elif one.kind is PassKind.BACKWARD and one.stage < len(stages) - 1:
            way = ways[one.stage]
            taken = way[one.micro_batch % len(way)]
            needed_s = ends[one.stage + 1, one.micro_batch, one.kind] + taken.back_s + taken.back_delay_s
        else:
            continue
        assert one.start_s >= needed_s - 1e-9
