"""Who of a pipeline's workers computes which micro-batch, where stages have several workers."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.kit.plan_model.pipeline_order import (
    PIPELINE_ORDERS,
    PassKind,
    PipelinePass,
    is_split,
    passes_of,
)
from peerloom.kit.shadow_ring import shadow_holders, ward_of
from peerloom.kit.stage_ranks import StageRanks, shares_of_stages

WIDTHS = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
WIDE = StageRanks((2, 1, 3))


def test_a_team_has_the_pieces_of_one_stages_layers() -> None:
    """Three stages in two pieces each: ranks 2 and 3 are in the middle, and go as the second of three."""
    ranks = StageRanks((1,) * 6, pieces=2)
    assert [list(ranks.team_of(stage)) for stage in (0, 3, 5)] == [[0, 1], [2, 3], [4, 5]]
    assert [ranks.piece_of(stage) for stage in range(6)] == [0, 1, 0, 1, 0, 1]
    assert [stage for stage in range(6) if ranks.is_first(stage)] == [0, 1]
    assert [stage for stage in range(6) if ranks.is_last(stage)] == [4, 5]
    for order in PIPELINE_ORDERS:
        plain = [one[1:] for one in StageRanks((1, 1, 1)).passes_of(order, 1, 6)]
        assert [one[1:] for one in ranks.passes_of(order, 2, 6)] == plain
        assert [one[1:] for one in ranks.passes_of(order, 3, 6)] == plain
        assert ranks.held_by(order, 3, 6) == StageRanks((1, 1, 1)).held_by(order, 1, 6)


def test_ranks_follow_the_stages() -> None:
    assert (WIDE.stages, WIDE.workers, WIDE.is_wide) == (3, 6, True)
    assert [list(WIDE.of_stage(stage)) for stage in range(3)] == [[0, 1], [2], [3, 4, 5]]
    assert [WIDE.stage_of(rank) for rank in range(6)] == list(WIDE.by_rank()) == [0, 0, 1, 2, 2, 2]
    assert [WIDE.turn_of(rank) for rank in range(6)] == [0, 1, 0, 0, 1, 2]
    assert not StageRanks((1, 1)).is_wide


def test_a_stages_workers_take_turns() -> None:
    assert [WIDE.rank_of(0, number) for number in range(5)] == [0, 1, 0, 1, 0]
    assert [WIDE.rank_of(1, number) for number in range(5)] == [2] * 5
    assert [WIDE.rank_of(2, number) for number in range(5)] == [3, 4, 5, 3, 4]
    assert WIDE.has_turn(5, 2)
    assert not WIDE.has_turn(5, 3)


def test_one_worker_of_each_stage_gives_its_part_of_a_file() -> None:
    assert [rank for rank in range(6) if WIDE.gives_part(rank, 0)] == [0, 2, 3]
    assert [rank for rank in range(6) if WIDE.gives_part(rank, 4)] == [0, 2, 4], "the writer has its own"


def test_1f1b_goes_ahead_by_a_micro_batch_for_each_worker_from_here_to_the_end() -> None:
    """Two workers in the last stage: the first one sends three before it awaits an answer."""
    ranks = StageRanks((1, 2))
    first = [f"{one.kind.name[0]}{one.micro_batch}" for one in ranks.passes_of("1f1b", 0, 4)]
    assert first == ["F0", "F1", "F2", "B0", "F3", "B1", "B2", "B3"]
    second = [f"{one.kind.name[0]}{one.micro_batch}" for one in ranks.passes_of("1f1b", 2, 4)]
    assert second == ["F1", "B1", "F3", "B3"]


@pytest.mark.parametrize("order", list(PIPELINE_ORDERS))
@given(widths=WIDTHS, micro_batches=st.integers(1, 12))
def test_each_pass_is_made_once_and_none_waits_for_ever(
    order: str, widths: tuple[int, ...], micro_batches: int
) -> None:
    """Ranks make their passes in turn, each as soon as what it needs has come in the order of its way."""
    ranks = StageRanks(widths)
    waiting = {rank: list(ranks.passes_of(order, rank, micro_batches)) for rank in range(ranks.workers)}
    made: Counter[PipelinePass] = Counter()

    def can_begin(one: PipelinePass) -> bool:
        if one.kind is PassKind.FORWARD:
            return one.stage == 0 or one._replace(stage=one.stage - 1) in made
        if one.kind is PassKind.WEIGHTS:
            return one._replace(kind=PassKind.BACKWARD) in made
        is_last = one.stage == ranks.stages - 1
        return one._replace(kind=PassKind.FORWARD) in made and (
            is_last or one._replace(stage=one.stage + 1) in made
        )

    moved = True
    while moved:
        moved = False
        for passes in waiting.values():
            while passes and can_begin(passes[0]):
                made[passes.pop(0)] += 1
                moved = True
    assert not any(waiting.values()), "somebody waits for ever"
    assert set(made.values()) == {1}
    assert len(made) == (3 if is_split(order) else 2) * micro_batches * ranks.stages


@pytest.mark.parametrize("order", list(PIPELINE_ORDERS))
@given(widths=WIDTHS, micro_batches=st.integers(1, 12))
def test_a_rank_holds_as_much_as_is_told(order: str, widths: tuple[int, ...], micro_batches: int) -> None:
    ranks = StageRanks(widths)
    for rank in range(ranks.workers):
        held, most, turns = 0, 0, 0
        last = PassKind.WEIGHTS if is_split(order) else PassKind.BACKWARD
        for one in ranks.passes_of(order, rank, micro_batches):
            held += (one.kind is PassKind.FORWARD) - (one.kind is last)
            most, turns = max(most, held), turns + (one.kind is PassKind.FORWARD)
        assert ranks.held_by(order, rank, micro_batches) == most
        assert ranks.turns_of(rank, micro_batches) == turns


@given(widths=WIDTHS, micro_batches=st.integers(1, 12))
def test_what_goes_from_one_rank_to_another_keeps_its_order(
    widths: tuple[int, ...], micro_batches: int
) -> None:
    """Nothing tells a receiver which micro-batch came, so both ends must have one order."""
    ranks = StageRanks(widths)
    for order in PIPELINE_ORDERS:
        for rank in range(ranks.workers):
            for kind in PassKind:
                passes = ranks.passes_of(order, rank, micro_batches)
                numbers = [one.micro_batch for one in passes if one.kind is kind]
                assert numbers == sorted(numbers)


@pytest.mark.parametrize("order", list(PIPELINE_ORDERS))
def test_with_a_worker_a_stage_nothing_is_other_than_before(order: str) -> None:
    ranks = StageRanks((1, 1, 1))
    for rank in range(3):
        assert list(ranks.passes_of(order, rank, 5)) == list(passes_of(order, rank, 3, 5))


def test_a_stage_is_as_fast_as_its_slowest_worker_times_their_number() -> None:
    assert shares_of_stages([10_000, 4_000, 7_000], StageRanks((2, 1))) == [8_000, 7_000]
    assert shares_of_stages([10_000, 5_000], StageRanks((1, 1))) == [10_000, 5_000]
    assert shares_of_stages([1, 1, 1], StageRanks((2, 1))) == [], "by widths alone"


def test_only_a_stage_of_one_worker_needs_a_shadow() -> None:
    """The state of a wide stage is with its second worker already."""
    ranks = StageRanks((2, 1))
    assert shadow_holders(["a", "b", "c"], ranks) == (1, 0)
    assert [ward_of(rank, (1, 0), ranks) for rank in range(3)] == [1, None, None]
    assert shadow_holders(["c", "b", "c"], ranks) == (1, 1), "on another node"
    assert shadow_holders(["a", "b", "c", "d"], StageRanks((2, 2))) == ()


@given(widths=WIDTHS, nodes=st.lists(st.sampled_from("abc"), min_size=16, max_size=16))
def test_nobody_keeps_two_shadows_nor_its_own(widths: tuple[int, ...], nodes: list[str]) -> None:
    ranks = StageRanks(widths)
    holders = shadow_holders(nodes[: ranks.workers], ranks)
    narrow = [stage for stage, width in enumerate(widths) if width == 1]
    if not narrow or ranks.workers == 1:
        assert holders == ()
        return
    kept = [holders[stage] for stage in narrow]
    assert len(set(kept)) == len(kept)
    assert all(ranks.stage_of(holders[stage]) != stage for stage in narrow)
    assert all(holders[stage] == ranks.of_stage(stage)[1] for stage in set(range(len(widths))) - set(narrow))
