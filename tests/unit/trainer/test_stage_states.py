"""With which states the stages of a pipeline go on after some were lost. What workers hold is invented."""

import random

import pytest

from peerloom.kit.shadow_ring import shadow_holders
from peerloom.kit.stage_ranks import StageRanks
from peerloom.services.trainer.generations.stage_states import GoBack, GoOn, newest_states
from peerloom.services.trainer.jobs.stage_entries import (
    enter_shadow,
    enter_stage,
    exchanges_of,
    rank_workers,
    stage_starts,
)
from peerloom.services.trainer.workers.stage_reports import why_not_stage
from peerloom.v1.trainer_pb2 import Job, JobSpec, ModelStage, StageShadow, Worker

Held = set[tuple[int, int]]
TWO, THREE = StageRanks((1, 1)), StageRanks((1, 1, 1))


def holders_of(nodes: str, widths: tuple[int, ...] = ()) -> tuple[int, ...]:
    """For ranks on nodes of a letter each."""
    return shadow_holders(list(nodes), StageRanks(widths or (1,) * len(nodes)))


def test_with_its_shadow_a_lost_stage_goes_on_from_the_newest_step() -> None:
    """Rank 2 is new; its shadow lies with rank 0, and has both of the newest steps."""
    held: list[Held] = [{(0, 8), (0, 9), (2, 8), (2, 9)}, {(1, 8), (1, 9), (0, 8), (0, 9)}, set()]
    reason = "from step 9, with the living states; stage 2 by that of 0, which kept its shadow"
    assert newest_states(held, THREE) == GoOn(9, (0, 1, 0), reason)


def test_where_a_shadow_lacks_the_last_step_all_go_back_by_one() -> None:
    held: list[Held] = [{(0, 8), (0, 9), (2, 8)}, {(1, 7), (1, 8), (0, 8)}, set()]
    went = newest_states(held, THREE, checkpoint_step=5)
    assert isinstance(went, GoOn)
    assert (went.step, went.sources) == (8, (0, 1, 0))


def test_who_went_ahead_and_forgot_takes_the_step_back_from_its_own_shadow() -> None:
    held: list[Held] = [{(0, 9), (2, 8)}, {(1, 8), (0, 8)}, set()]
    went = newest_states(held, THREE)
    assert isinstance(went, GoOn)
    assert (went.step, went.sources) == (8, (1, 1, 0))


def test_a_stage_that_is_lost_with_its_holder_sends_all_back_to_the_checkpoint() -> None:
    held: list[Held] = [{(0, 9), (2, 9)}, set(), set()]
    why = "the state of stage 1 is gone: it was lost with the worker that kept its shadow"
    assert newest_states(held, THREE, 4) == GoBack(why)
    assert newest_states([{(0, 9)}, {(1, 7)}], TWO) == GoBack(
        "no step is left whose state all stages have; the newest are, by stage, 0: 9, 1: 7"
    )
    assert newest_states([set(), set()], TWO) == GoBack(""), "nobody kept any"


def test_a_lost_worker_has_its_state_from_its_companion() -> None:
    """Widths 2/1, rank 1 lost; a shadow of stage 1 lies with rank 0. Then both of stage 0 are."""
    ranks = StageRanks((2, 1))
    held: list[Held] = [{(0, 8), (0, 9), (1, 8), (1, 9)}, set(), {(1, 8), (1, 9)}]
    reason = "from step 9, with the living states; a worker of stage 0 has that of 0, its companion"
    assert newest_states(held, ranks) == GoOn(9, (0, 0, 2), reason)
    gone = GoBack("the state of stage 0 is gone: all 2 of its workers were lost")
    assert newest_states([set(), set(), {(1, 9)}], ranks) == gone


def test_any_worker_of_wide_stages_may_die_in_any_moment() -> None:
    """No stage needs a shadow; some have committed the newest step, and each has its past."""
    chance = random.Random(11)
    for _ in range(2000):
        ranks = StageRanks(tuple(chance.randint(2, 4) for _ in range(chance.randint(2, 4))))
        step = chance.randint(2, 50)
        own = [step - (chance.random() < 0.5) for _ in range(ranks.workers)]
        held: list[Held] = [
            {(stage, own[rank] - 1), (stage, own[rank])} if chance.random() < 0.6 else set()
            for rank, stage in enumerate(ranks.by_rank())
        ]
        went = newest_states(held, ranks)
        is_gone = any(not any(held[rank] for rank in ranks.of_stage(stage)) for stage in range(ranks.stages))
        assert isinstance(went, GoBack) == is_gone
        if isinstance(went, GoOn):
            assert went.step >= step - 1
            for rank, source in enumerate(went.sources):
                assert (ranks.stage_of(rank), went.step) in held[source]
                assert source == rank or (ranks.stage_of(rank), went.step) not in held[rank]


def test_a_newer_checkpoint_counts_for_more() -> None:
    assert isinstance(newest_states([{(0, 5)}, {(1, 5)}], TWO, 6), GoBack)
    assert isinstance(newest_states([{(0, 5)}, {(1, 5)}], TWO, 5), GoOn)


def test_shadows_lie_on_other_nodes_where_that_is_possible() -> None:
    assert holders_of("a") == ()
    assert holders_of("abc") == (1, 2, 0)
    assert holders_of("aabb") == (2, 3, 0, 1)
    assert holders_of("aa") == (1, 0)


def test_no_step_is_lost_unless_a_stage_and_its_holder_are() -> None:
    """Any stages are lost in any moment of a step; some others have committed it, and some changes came."""
    chance = random.Random(7)
    for _ in range(3000):
        stages, step = chance.randint(2, 6), chance.randint(2, 50)
        holders = holders_of("".join(chance.choice("abc") for _ in range(stages)))
        lost = {stage for stage in range(stages) if chance.random() < 0.35}
        if len(lost) == stages:
            continue
        # Nobody commits a step before the changes of the step before have come to all.
        own = [step - (chance.random() < 0.5) for _ in range(stages)]
        held: list[Held] = [set() for _ in range(stages)]
        for stage, newest in enumerate(own):
            held[stage] |= {(stage, newest - 1), (stage, newest)}
            holder = holders[stage]
            kept = range(own[holder] - 1, own[holder] + 1)
            came = max(own) - 1 + (chance.random() < 0.5)
            held[holder] |= {(stage, each) for each in kept if each <= came}
        for stage in lost:
            held[stage] = set()
        went = newest_states(held, StageRanks((1,) * stages))
        is_gone = any(stage in lost and holders[stage] in lost for stage in range(stages))
        assert isinstance(went, GoBack) == is_gone
        if isinstance(went, GoOn):
            living = max(own[stage] for stage in range(stages) if stage not in lost)
            assert went.step >= living - 1
            assert all((stage, went.step) in held[rank] for stage, rank in enumerate(went.sources))


def test_where_stages_begin_is_what_workers_held_last() -> None:
    job = Job(workers=[Worker(worker_id=f"w{n}", rank=n, generation=1 + n // 2) for n in range(3)])
    assert enter_stage(job, "w0", ModelStage(number=0, first_layer=0, end_layer=3))
    assert not enter_stage(job, "w0", ModelStage(number=0, first_layer=0, end_layer=3))
    enter_stage(job, "w1", ModelStage(number=1, first_layer=3, end_layer=8))
    enter_stage(job, "w2", ModelStage(number=1, first_layer=3, end_layer=9))
    assert stage_starts(job) == [0, 3]
    enter_stage(job, "w2", ModelStage(number=1, first_layer=4, end_layer=9))
    assert stage_starts(job) == [], "they don't fit together"


def test_pieces_of_the_same_layers_begin_where_these_do() -> None:
    job = Job(workers=[Worker(worker_id=f"w{n}", rank=n, generation=1) for n in range(4)])
    for number, (first, end) in enumerate([(0, 3), (0, 3), (3, 8), (3, 8)]):
        piece = ModelStage(number=number, first_layer=first, end_layer=end, pieces=2, piece=number % 2)
        enter_stage(job, f"w{number}", piece)
    assert stage_starts(job) == [0, 0, 3, 3]
    enter_stage(job, "w3", ModelStage(number=3, first_layer=3, end_layer=9, pieces=2, piece=1))
    assert stage_starts(job) == [], "they aren't pieces of the same"


def test_exchanges_that_take_longer_than_computing_are_told() -> None:
    assert exchanges_of(ModelStage(number=0, exchange_s=1.25, compute_s=0.5)).startswith(
        "exchanges within layers are predicted to take 1.2 s of each step, beside 0.5 s of computing"
    )
    assert not exchanges_of(ModelStage(number=0, exchange_s=0.4, compute_s=0.5))
    assert not exchanges_of(ModelStage(number=1, exchange_s=1.25, compute_s=0.5)), "one tells it"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"pieces": 2, "piece": 1}, ""),
        ({"pieces": 2, "piece": 0}, "piece 0 of 2 as stage 1"),
        ({"pieces": 3, "piece": 1}, "piece 1 of 3 as stage 1"),
        ({}, "piece 0 of 0 as stage 1"),
        ({"pieces": 2, "piece": 1, "exchange_s": -1.0}, "must take 0 or more"),
        ({"pieces": 2, "piece": 1, "compute_s": float("nan")}, "must take 0 or more"),
    ],
)
def test_what_a_worker_can_not_hold_of_layers_in_pieces(more: dict[str, float], why: str) -> None:
    job = Job(spec=JobSpec(plan="tensor=2,micro_batches=1"))
    stage = ModelStage(number=1, first_layer=0, end_layer=8, workers=1)
    for name, value in more.items():
        setattr(stage, name, value)
    assert (why in why_not_stage(job, stage)) if why else not why_not_stage(job, stage)


def test_that_no_shadows_are_kept_is_news_once() -> None:
    job = Job(workers=[Worker(worker_id="w0"), Worker(worker_id="w1", rank=1)])
    assert enter_shadow(job, "w0", StageShadow(stage=1, step=4)) == ""
    assert job.workers[0].shadow.step == 4
    assert enter_shadow(job, "w1", StageShadow(why_not="too slow")) == "", "rank 0 says the same"
    assert enter_shadow(job, "w0", StageShadow(why_not="too slow")) == "too slow"
    assert enter_shadow(job, "w0", StageShadow(why_not="too slow")) is None
    rank_workers(job, ["w1"])
    assert not job.workers[0].HasField("shadow")
    assert job.workers[1].rank == 0
