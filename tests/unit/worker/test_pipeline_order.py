"""In which order a stage computes, and at which layers stages begin: properties, and cases by hand."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.errors import InvalidArgumentError
from peerloom.kit.parallel_plan import ParallelPlan
from peerloom.kit.plan_model.pipeline_order import ONE_F_ONE_B, PassKind, PipelinePass, passes_of
from peerloom.worker.plan.balancing import MOST_OF_ROOM, LayerFacts, ends_of, stage_starts


def passes(stage: int, stages: int, micro_batches: int) -> list[PipelinePass]:
    """In the order that workers compute in."""
    return list(passes_of(ONE_F_ONE_B, stage, stages, micro_batches))


def test_the_first_of_three_stages_is_two_forward_passes_ahead() -> None:
    words = " ".join(f"{one.kind.name[0]}{one.micro_batch}" for one in passes(0, 3, 4))
    assert words == "F0 F1 F2 B0 F3 B1 B2 B3"
    words = " ".join(f"{one.kind.name[0]}{one.micro_batch}" for one in passes(2, 3, 4))
    assert words == "F0 B0 F1 B1 F2 B2 F3 B3"


@given(st.integers(1, 8), st.integers(1, 20), st.data())
def test_each_micro_batch_goes_forward_then_backward_and_few_are_under_way(
    stages: int, micro_batches: int, data: st.DataObject
) -> None:
    stage = data.draw(st.integers(0, stages - 1))
    under_way, done = set[int](), list[int]()
    for one in passes(stage, stages, micro_batches):
        if one.kind is PassKind.FORWARD:
            under_way.add(one.micro_batch)
        else:
            under_way.remove(one.micro_batch)
            done.append(one.micro_batch)
        assert len(under_way) <= stages - stage
    assert done == list(range(micro_batches))
    assert not under_way


@given(st.integers(2, 6), st.integers(1, 12))
def test_stages_that_wait_for_one_another_never_wait_for_ever(stages: int, micro_batches: int) -> None:
    """A forward pass waits for that of the stage before, a backward pass for that of the stage behind."""
    left = [passes(stage, stages, micro_batches) for stage in range(stages)]
    made = set[tuple[int, int, PassKind]]()
    while any(left):
        before = len(made)
        for stage, order in enumerate(left):
            if order:
                one = order[0]
                needed = stage - 1 if one.kind is PassKind.FORWARD else stage + 1
                if needed in (-1, stages) or (needed, one.micro_batch, one.kind) in made:
                    made.add((stage, one.micro_batch, one.kind))
                    del order[0]
        assert len(made) > before, "all stages wait"


def layers(*costs: float) -> list[LayerFacts]:
    """Layers of these costs; one of cost 0 has nothing to train."""
    return [LayerFacts(f"l{n}", cost, int(cost > 0)) for n, cost in enumerate(costs)]


def test_the_dearest_stage_costs_as_little_as_the_layers_allow() -> None:
    assert stage_starts(layers(4, 0, 1, 1, 0, 2), ParallelPlan(2)) == (0, 2)
    assert stage_starts(layers(1, 1, 1, 9), ParallelPlan(2)) == (0, 3)
    assert stage_starts(layers(5, 5, 5), ParallelPlan(3)) == (0, 1, 2)
    assert stage_starts(layers(0, 3, 0, 3), ParallelPlan(2)) == (0, 3), "what trains nothing stays beside"
    assert stage_starts(layers(1, 2, 3, 4), ParallelPlan(3, (1, 2))) == (0, 1, 2), "the user's own starts"


def test_a_stage_with_a_larger_share_may_cost_more() -> None:
    even = layers(1, 1, 1, 1, 1, 1)
    assert stage_starts(even, ParallelPlan(2), shares=[2, 1]) == (0, 4)
    assert stage_starts(even, ParallelPlan(2), shares=[1, 9]) == (0, 1), "each has something to train"
    assert stage_starts(even, ParallelPlan(2, (5,)), shares=[1, 9]) == (0, 5), "the user's own starts"


def test_a_stage_holds_no_more_than_its_slots_have_room_for() -> None:
    """By cost (0, 3); of the first three 24 bytes are held, and 20 are three quarters of the first room."""
    sizes = (12, 4, 8, 6)
    held = [replace(layer, held_bytes=size) for layer, size in zip(layers(1, 1, 1, 3), sizes, strict=True)]
    assert stage_starts(held, ParallelPlan(2)) == (0, 3)
    assert stage_starts(held, ParallelPlan(2), rooms=[32, 32]) == (0, 3)
    assert stage_starts(held, ParallelPlan(2), rooms=[27, 32]) == (0, 2)
    assert stage_starts(held, ParallelPlan(2), rooms=[20, 12]) == (0, 2), "16/20 and 14/12, by least too much"
    assert stage_starts(held, ParallelPlan(2), rooms=[0, 10]) == (0, 1), "each has something to train"


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 9)), min_size=2, max_size=8), st.data())
def test_no_other_cut_that_fits_has_a_cheaper_dearest_stage(
    made: list[tuple[int, int]], data: st.DataObject
) -> None:
    facts = [LayerFacts(f"l{n}", cost, 1, size) for n, (cost, size) in enumerate(made)]
    stages = data.draw(st.integers(2, len(facts)))
    rooms = data.draw(st.lists(st.integers(1, 30), min_size=stages, max_size=stages))

    def fullest(starts: tuple[int, ...]) -> float:
        parts = zip(starts, ends_of(starts, len(facts)), rooms, strict=True)
        return max(sum(layer.held_bytes for layer in facts[a:b]) / room for a, b, room in parts)

    def dearest(starts: tuple[int, ...]) -> float:
        parts = zip(starts, ends_of(starts, len(facts)), strict=True)
        return max(sum(layer.cost for layer in facts[a:b]) for a, b in parts)

    every = [(0, *rest) for rest in combinations(range(1, len(facts)), stages - 1)]
    limit = max(MOST_OF_ROOM, min(map(fullest, every)))
    found = stage_starts(facts, ParallelPlan(stages), rooms=rooms)
    assert fullest(found) <= limit * (1 + 1e-6)
    assert dearest(found) == min(dearest(starts) for starts in every if fullest(starts) <= limit)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=9), st.data())
def test_no_other_cut_has_a_cheaper_dearest_stage(costs: list[int], data: st.DataObject) -> None:
    stages = data.draw(st.integers(2, len(costs)))
    shares = data.draw(st.lists(st.sampled_from([1, 2, 4]), min_size=stages, max_size=stages))

    def dearest(starts: tuple[int, ...]) -> float:
        stages = zip(starts, ends_of(starts, len(costs)), shares, strict=True)
        return max(sum(costs[a:b]) / share for a, b, share in stages)

    every = [(0, *rest) for rest in combinations(range(1, len(costs)), stages - 1)]
    found = stage_starts(layers(*costs), ParallelPlan(stages), shares=shares)
    assert found in every
    assert dearest(found) == min(map(dearest, every))


@pytest.mark.parametrize(
    ("plan", "costs", "said"),
    [
        (
            ParallelPlan(3),
            (1, 0, 2),
            "at most pipeline=2: 2 of the model's 3 layers have parameters",
        ),
        (ParallelPlan(2, (3,)), (1, 1, 1), "within the model's 3 layers, 0 to 2"),
        (ParallelPlan(3, (1, 2)), (1, 0, 1), r"stage 1 \(l1\) would have nothing to train"),
        (ParallelPlan(2), (1,), r"the model can't be cut \(it is one\)"),
    ],
)
def test_what_can_not_be_cut_so_is_refused_with_the_reason(
    plan: ParallelPlan, costs: tuple[float, ...], said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        stage_starts(layers(*costs), plan, "it is one")
