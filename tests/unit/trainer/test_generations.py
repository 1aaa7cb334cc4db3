"""When generations form, break and end. Members and times are invented; nothing here waits."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloom.services.trainer.generations import decision_types as g
from peerloom.services.trainer.generations.decisions import SAVE_LIMIT_S, decide, decide_training
from peerloom.services.trainer.workers.decisions import Limits
from peerloom.services.trainer.workers.state import (
    Contact,
    Departure,
    Finished,
    Idle,
    Leaving,
    Lost,
    Meeting,
    Phase,
    Silent,
    Starting,
    WorkerState,
    Working,
)
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.trainer_pb2 import Job, Worker, WorkerFinished

LIMITS = Limits(start_timeout_s=60, reconnect_timeout_s=15, agent_timeout_s=1, min_workers=1)
AT_ONCE = Departure()
LATER = Departure(leave_by_s=10.0)
WITH_MODEL = Finished(WorkerFinished(model=Artifact(digest="a" * 64)))
WITHOUT_MODEL = Finished(WorkerFinished())
# Members of the current generation that are there no more.
GONE: list[Phase] = [Lost(is_member=True), Idle(is_member=True), Silent(since_s=0.0)]


def workers(*phases: Phase, step: int = 0) -> list[WorkerState]:
    """w0, w1, ... in these phases."""
    return [WorkerState(f"w{i}", phase, step) for i, phase in enumerate(phases)]


def test_waits_for_every_worker_that_was_started() -> None:
    pool = [WorkerState("w0", Idle()), WorkerState("w1", Starting(heard_s=100.0))]
    assert decide(pool, 0, LIMITS, 120.0) == g.Wait("workers are starting", until_s=160.0)


def test_gives_up_on_a_worker_that_never_came() -> None:
    pool = [WorkerState("w0", Idle()), WorkerState("w1", Starting(heard_s=100.0))]
    assert decide(pool, 0, LIMITS, 160.0) == g.GiveUpOn(("w1",), "nothing was heard of it for too long")


def test_forms_the_first_generation_without_moving_state() -> None:
    decision = decide(workers(Idle(), Idle(), Idle()), 0, LIMITS, 0.0)
    assert isinstance(decision, g.Form)
    assert decision.worker_ids == ("w0", "w1", "w2")
    assert (decision.first_step, decision.newcomers) == (0, 0)


def test_the_most_advanced_worker_becomes_rank_0_and_gives_its_state() -> None:
    pool = [WorkerState("w0", Idle(is_member=True), 7), WorkerState("w1", Idle(is_member=True), 8)]
    decision = decide(pool, 1, LIMITS, 0.0)
    assert isinstance(decision, g.Form)
    assert decision.worker_ids == ("w1", "w0")
    assert (decision.first_step, decision.newcomers) == (8, 1)


def test_of_equally_advanced_workers_a_member_gives_its_state_to_one_that_was_left_behind() -> None:
    # It made its step 8 in an older generation, with other shares.
    pool = [WorkerState("w0", Idle(is_member=False), 8), WorkerState("w1", Idle(is_member=True), 8)]
    decision = decide(pool, 2, LIMITS, 0.0)
    assert isinstance(decision, g.Form)
    assert decision.worker_ids == ("w1", "w0")
    assert (decision.first_step, decision.newcomers) == (8, 1)


def test_members_that_are_equally_advanced_send_no_state() -> None:
    decision = decide(workers(Idle(is_member=True), Idle(is_member=True), step=8), 2, LIMITS, 0.0)
    assert isinstance(decision, g.Form)
    assert decision.newcomers == 0


@pytest.mark.parametrize("gone", GONE)
def test_a_member_that_is_gone_breaks_the_generation_for_the_others_at_once(gone: Phase) -> None:
    decision = decide(workers(Working(), gone, Working()), 1, LIMITS, 0.0)
    assert isinstance(decision, g.Abort)
    assert decision.worker_ids == ("w0", "w2")
    assert not decision.is_polite


def joins(*worker_ids: str) -> g.Form:
    """These, of whom the last is new, meet while the others work on from step 9."""
    return g.Form(worker_ids, 9, 1, f"a worker joins: {len(worker_ids)} workers meet", beside=True)


def test_a_newcomer_meets_the_others_while_they_work_and_joins_at_a_step_boundary() -> None:
    pool = [*workers(Working(), Working(), step=9), WorkerState("new", Idle())]
    assert decide(pool, 1, LIMITS, 0.0) == joins("w0", "w1", "new")
    meeting = [replace(w, phase=Working(meeting=Meeting(by_s=15.0))) for w in pool]
    one_met = [meeting[0].met(), *meeting[1:]]
    assert decide(one_met, 2, LIMITS, 5.0) == g.Wait("the next generation meets", until_s=15.0)
    all_met = [w.met() for w in meeting]
    assert decide(all_met, 2, LIMITS, 5.0) == g.Enter("3 workers have met")
    assert decide(one_met, 2, LIMITS, 15.0) == g.Abort(
        ("w0", "w1", "new"), "the workers of the next generation can't meet"
    )


@pytest.mark.parametrize("gone", GONE)
def test_who_goes_while_they_meet_breaks_both_generations(gone: Phase) -> None:
    pool = workers(Working(meeting=Meeting(by_s=15.0, has_met=True)), gone, step=9)
    decision = decide(pool, 2, LIMITS, 5.0)
    assert isinstance(decision, g.Abort)
    assert (decision.worker_ids, decision.is_polite) == (("w0",), False)


def test_a_newcomer_waits_while_another_gets_the_state_and_is_not_needed_at_the_end() -> None:
    works, new = WorkerState("w0", Working(), 9), WorkerState("new", Idle())
    listens = WorkerState("w1", Working(is_ready=False))
    assert isinstance(decide([works, listens, new], 2, LIMITS, 0.0), g.Wait)
    finished = WorkerState("w1", WITHOUT_MODEL, 10)
    assert isinstance(decide([works, finished, new], 2, LIMITS, 0.0), g.Wait)


def test_a_newcomer_joins_at_a_step_boundary_where_meeting_stops_the_others() -> None:
    pool = [*workers(Working(), Working(), step=9), WorkerState("new", Idle())]
    nccl = replace(LIMITS, meets_beside=False)
    assert decide(pool, 1, nccl, 0.0) == g.Abort(("w0", "w1"), "a worker joins", is_polite=True)
    idle = [*workers(Idle(is_member=True), Idle(is_member=True), step=9), WorkerState("new", Idle())]
    decision = decide(idle, 1, LIMITS, 0.0)
    assert isinstance(decision, g.Form)
    assert decision.worker_ids == ("w0", "w1", "new")
    assert decision.newcomers == 1


def test_a_newcomer_that_still_starts_holds_nobody_up() -> None:
    pool = [*workers(Idle(is_member=True), step=9), WorkerState("new", Starting(heard_s=0.0))]
    assert isinstance(decide(pool, 1, LIMITS, 1.0), g.Form)


def test_a_departing_worker_is_let_go_once_others_have_the_state() -> None:
    stays, goes = workers(Working(), Working(), step=5)
    goes = replace(goes, departure=AT_ONCE)
    decision = decide([stays, goes], 1, LIMITS, 0.0)
    assert decision == g.Abort(("w0", "w1"), "a node wants its slots back", is_polite=True)
    at_rest = [replace(w, phase=Idle(is_member=True)) for w in (stays, goes)]
    assert decide(at_rest, 1, LIMITS, 0.0) == g.Dismiss(("w1",), "its node asked it to leave")


def test_a_departing_worker_with_the_newest_state_hands_it_over_first() -> None:
    goes = WorkerState("w0", Idle(is_member=True), 9, AT_ONCE)
    decision = decide([goes, WorkerState("new", Idle())], 1, LIMITS, 0.0)
    assert isinstance(decision, g.Form)
    assert decision.worker_ids == ("w0", "new")


def test_a_departing_worker_waits_for_its_replacement_as_long_as_it_may() -> None:
    goes = WorkerState("w0", Working(), 9, LATER)
    stays = WorkerState("w1", Working(), 9)
    assert decide([goes, stays], 1, LIMITS, 5.0) == g.Wait("the generation works", until_s=10.0)
    come = WorkerState("new", Idle())
    assert decide([goes, stays, come], 1, LIMITS, 5.0) == joins("w1", "new")
    met = [replace(w, phase=Working(meeting=Meeting(by_s=9.0, has_met=True))) for w in (stays, come)]
    assert decide([goes, *met], 2, LIMITS, 6.0) == g.Enter("2 workers have met")
    leaves = g.Abort(("w0", "w1"), "a node wants its slots back", is_polite=True)
    assert decide([goes, stays], 1, LIMITS, 10.0) == leaves


def test_a_newcomer_that_has_to_go_again_is_let_go_at_once() -> None:
    pool = [
        WorkerState("w0", Working(), 9),
        WorkerState("new", Idle(), departure=Departure(leave_by_s=99.0)),
    ]
    assert decide(pool, 1, LIMITS, 5.0) == g.Dismiss(("new",), "its node asked it to leave")


def test_a_departing_worker_stays_until_its_heir_has_the_state() -> None:
    goes = WorkerState("w0", Working(), 9, AT_ONCE)
    listens = WorkerState("new", Working(is_ready=False))
    assert isinstance(decide([goes, listens], 2, LIMITS, 99.0), g.Wait)
    ready = replace(listens.ready(), step=9)
    assert isinstance(decide([goes, ready], 2, LIMITS, 99.0), g.Abort)


def test_the_last_worker_stores_its_state_before_it_leaves() -> None:
    alone = WorkerState("w0", Working(), 9, AT_ONCE)
    decision = decide([alone], 1, LIMITS, 5.0, checkpoint_step=3)
    assert decision == g.Abort(("w0",), "nobody stays, so the state is stored", is_polite=True)
    rests = replace(alone, phase=Idle(is_member=True))
    assert decide([rests], 1, LIMITS, 5.0, checkpoint_step=3) == g.Save(
        "w0", "its node wants it to leave, and nobody else has its state"
    )
    asked = rests.asked_to_save(5.0)
    held = decide([asked], 1, LIMITS, 6.0, checkpoint_step=3)
    assert held == g.Hold("waiting for the state to be stored", 5.0 + SAVE_LIMIT_S)
    assert isinstance(decide([asked], 1, LIMITS, 5.0 + SAVE_LIMIT_S, checkpoint_step=3), g.Save)
    kept = decide([asked], 1, LIMITS, 6.0, checkpoint_step=9)
    assert kept == g.Dismiss(("w0",), "its state is kept in the checkpoint of step 9")


def test_a_last_worker_that_may_stay_after_all_goes_on() -> None:
    alone = WorkerState("w0", Idle(is_member=True), 9, AT_ONCE).asked_to_save(5.0).staying()
    assert isinstance(decide([alone], 1, LIMITS, 6.0), g.Form)


def test_a_replacement_is_taken_although_the_departing_worker_fills_the_job() -> None:
    goes = WorkerState("w0", Working(), 9, LATER)
    one = replace(LIMITS, max_workers=1)
    decision = decide([goes, WorkerState("new", Idle())], 1, one, 5.0)
    assert decision == joins("w0", "new")


def test_waits_until_all_have_left_before_the_next_generation() -> None:
    leaving = WorkerState("w1", Leaving(since_s=10.0))
    decision = decide([*workers(Idle(is_member=True)), leaving], 1, LIMITS, 20.0)
    assert decision == g.Wait("workers are leaving the generation", until_s=70.0)


def test_a_broken_line_is_forgiven_until_the_limit() -> None:
    away = WorkerState("w0", Working(away_since_s=10.0))
    assert decide([away], 1, LIMITS, 24.9) == g.Wait("the generation works", until_s=25.0)
    assert isinstance(decide([away], 1, LIMITS, 25.0), g.GiveUpOn)


def test_a_broken_line_to_a_node_whose_agent_is_away_too_is_a_dead_node() -> None:
    away = WorkerState("w0", Working(away_since_s=10.0), contact=Contact(is_agent_away=True))
    assert isinstance(decide([away], 1, LIMITS, 11.0), g.GiveUpOn)


def test_a_quiet_worker_is_left_behind_and_may_come_back() -> None:
    quiet = WorkerState("w0", Working(), contact=Contact(quiet_at_s=30.0))
    assert decide([quiet], 1, LIMITS, 29.0) == g.Wait("the generation works", until_s=30.0)
    assert decide([quiet], 1, LIMITS, 30.0) == g.Silence(("w0",), "it shows no sign of life")
    alone = quiet.fell_silent(30.0)
    assert isinstance(decide([alone], 1, LIMITS, 31.0), g.Hold)
    assert isinstance(decide([alone], 1, LIMITS, 90.0), g.GiveUpOn)


def test_who_is_to_leave_may_end_the_batch_that_it_computes() -> None:
    """A minute more than its 30 samples take; a liar holds the others up for eleven minutes at most."""
    limits, why = replace(LIMITS, batch_size=30), "workers are leaving the generation"
    for sample_s, until_s in ((0.0, 60.0), (3.0, 150.0), (1e9, 660.0)):
        leaving = WorkerState("w0", Leaving(0.0), contact=Contact(sample_s=sample_s))
        assert decide([leaving], 1, limits, until_s - 1.0) == g.Wait(why, until_s)
        assert isinstance(decide([leaving], 1, limits, until_s), g.GiveUpOn)


def test_holds_with_fewer_than_min_workers_and_fails_with_none() -> None:
    limits = replace(LIMITS, min_workers=2)
    decision = decide(workers(Idle(is_member=True), Lost(is_member=True), step=3), 1, limits, 0.0)
    assert decision == g.Hold("waiting for nodes: 1 of at least 2 workers are there", None)
    assert isinstance(decide(workers(Lost(is_member=True), Lost(is_member=True)), 1, limits, 0.0), g.Fail)


def test_completes_when_all_have_finished_and_one_holds_the_model() -> None:
    pool = [WorkerState("w0", WITH_MODEL, 10), WorkerState("w1", WITHOUT_MODEL, 10)]
    assert decide(pool, 1, LIMITS, 0.0) == g.Complete("w0", "all workers have finished")
    assert isinstance(decide([*pool, WorkerState("new", Idle())], 1, LIMITS, 0.0), g.Complete)


def test_if_the_holder_of_the_model_is_lost_the_others_save_it_again() -> None:
    pool = [WorkerState("w0", WITH_MODEL, 10).lost(), WorkerState("w1", WITHOUT_MODEL, 10)]
    decision = decide(pool, 1, LIMITS, 0.0)
    assert isinstance(decision, g.Form)
    assert decision.worker_ids == ("w1",)


def test_waits_for_those_who_still_work_at_the_end() -> None:
    pool = [WorkerState("w0", WITH_MODEL, 10), WorkerState("w1", Working(), 9)]
    assert decide(pool, 1, LIMITS, 0.0) == g.Wait("the generation works", until_s=None)


def test_without_any_state_the_checkpoint_is_what_the_job_goes_on_from() -> None:
    lost = WorkerState("w0", Lost(is_member=True), 40)
    held = decide([lost], 1, LIMITS, 0.0, checkpoint_step=30)
    assert held == g.Hold("waiting for at least 1 worker, to go on from the checkpoint of step 30", None)
    starting = WorkerState("new", Starting(heard_s=0.0))
    assert isinstance(decide([lost, starting], 1, LIMITS, 1.0, checkpoint_step=30), g.Hold)
    decision = decide([lost, WorkerState("new", Idle())], 1, LIMITS, 1.0, checkpoint_step=30)
    assert isinstance(decision, g.Form)
    assert (decision.from_checkpoint, decision.first_step, decision.worker_ids) == (True, 30, ("new",))


@pytest.mark.parametrize("is_there", [False, True], ids=["all lost", "one was to get the state"])
def test_without_state_and_checkpoint_a_job_begins_anew_three_times(is_there: bool) -> None:
    """One may be there whose generation broke before the state had come."""
    there = [WorkerState("w1", Idle(is_member=True))] if is_there else []
    pool = [WorkerState("w0", Lost(is_member=True), 40), *there]
    why = "begin anew: all who had the state are lost, and there is no checkpoint yet"
    decision = decide(pool, 2, LIMITS, 0.0, committed_step=50, begun_anew=2)
    if is_there:
        assert decision == g.Form(("w1",), 0, 0, f"1 worker begins{why.removeprefix('begin')}")
    else:
        assert decision == g.Hold(f"waiting for at least 1 worker, to {why}", None)
    failed = decide(pool, 2, LIMITS, 0.0, committed_step=50, begun_anew=3)
    assert failed == g.Fail(
        "nobody is left who has the state, and there is no checkpoint: it began anew 3 times already"
    )


@pytest.mark.parametrize(("unfit", "fails"), [((True, True), True), ((True, False), False)])
def test_who_lost_its_last_workers_for_want_of_memory_does_not_begin_anew(
    unfit: tuple[bool, bool], fails: bool
) -> None:
    """One that another job's end, or a crash, took says nothing of the memory that this job needs."""
    names = ("w0", "w1")
    told = [
        Worker(worker_id=name, generation=2, unfit=lacked) for name, lacked in zip(names, unfit, strict=True)
    ]
    job = Job(generation=2, workers=[Worker(worker_id="former", generation=1), *told])
    job.progress.step = 50
    lost = [WorkerState(name, Lost(is_member=True), 40) for name in names]
    decision = decide_training(job, lost, LIMITS, 0.0)
    if fails:
        assert isinstance(decision, g.Fail)
        assert decision.reason.startswith("none of its nodes can do this job; where they lack memory")
    else:
        assert isinstance(decision, g.Hold)
    beside = decide_training(job, [*lost, WorkerState("new", Idle())], LIMITS, 0.0)
    assert isinstance(beside, g.Form), "who is there may have more"


def test_one_that_was_to_get_the_state_goes_on_from_the_checkpoint() -> None:
    empty = WorkerState("w1", Idle(is_member=True))
    decision = decide([empty], 2, LIMITS, 0.0, checkpoint_step=40, committed_step=50, begun_anew=3)
    assert isinstance(decision, g.Form)
    assert (decision.from_checkpoint, decision.first_step) == (True, 40)
    assert isinstance(decide([empty], 2, LIMITS, 0.0), g.Form), "nothing was committed: nothing is lost"


def test_a_state_older_than_the_checkpoint_is_not_gone_on_from() -> None:
    old = WorkerState("w0", Idle(is_member=True), 10)
    decision = decide([old], 2, LIMITS, 0.0, checkpoint_step=40, committed_step=50)
    assert isinstance(decision, g.Form)
    assert (decision.from_checkpoint, decision.first_step) == (True, 40)


@pytest.mark.parametrize("others", [Working(), Idle(is_member=True)])
def test_one_whose_steps_are_made_again_by_others_does_not_come_back(others: Phase) -> None:
    """It would bring a model that the ledger doesn't tell of: its state is further than theirs."""
    back = WorkerState("back", Idle(), 26, left_at_step=15)
    decision = decide([*workers(others, step=18), back], 3, LIMITS, 0.0, committed_step=18)
    assert decision == g.Dismiss(("back",), "others make the steps again that its state has")
    in_time = replace(back, left_at_step=26)
    assert not isinstance(decide([*workers(others, step=18), in_time], 3, LIMITS, 0.0), g.Dismiss)


def test_more_workers_than_wanted_are_let_go_those_with_the_newest_state_stay() -> None:
    two = replace(LIMITS, max_workers=2)
    back = WorkerState("back", Idle(), 7)
    decision = decide([*workers(Working(), Working(), step=9), back], 3, two, 0.0)
    assert decision == g.Dismiss(("back",), "the job has all the workers it can use")
    decision = decide([back, *workers(Idle(is_member=True), Idle(is_member=True), step=9)], 3, two, 0.0)
    assert decision == g.Dismiss(("back",), "the job has all the workers it can use")


times = st.floats(0, 100)
sometimes = st.none() | times
phase: st.SearchStrategy[Phase] = st.one_of(
    st.builds(Starting, times),
    st.builds(Idle, st.booleans(), sometimes),
    st.builds(Working, st.booleans(), st.none() | st.builds(Meeting, times, st.booleans()), sometimes),
    st.builds(Leaving, times, st.booleans()),
    st.builds(Silent, times, st.booleans()),
    st.sampled_from([WITH_MODEL, WITHOUT_MODEL]),
    st.builds(Lost, st.booleans()),
)
worker = st.builds(
    WorkerState,
    worker_id=st.uuids().map(str),
    phase=phase,
    step=st.integers(0, 50),
    departure=st.none() | st.builds(Departure, sometimes, st.just(""), sometimes),
    contact=st.builds(Contact, sometimes, st.booleans()),
)


@settings(max_examples=1000)
@given(
    st.lists(worker, max_size=6),
    st.integers(0, 3),
    st.floats(0, 200),
    st.integers(1, 4),
    st.none() | st.integers(1, 50),
    st.integers(0, 50),
    st.integers(0, 3),
)
def test_every_decision_makes_sense(
    pool: list[WorkerState],
    generation: int,
    now_s: float,
    min_workers: int,
    checkpoint: int | None,
    done: int,
    begun_anew: int,
) -> None:
    """Whatever the state: nobody lost is used, no group forms beside a working one, waits have an end."""
    limits = replace(LIMITS, min_workers=min_workers, max_workers=4, meets_beside=min_workers % 2 == 1)
    alive = {w.worker_id: w for w in pool if not isinstance(w.phase, Lost)}
    match decide(pool, generation, limits, now_s, checkpoint, done, begun_anew):
        case g.Form(beside=True) as form:
            formed = [alive[worker_id] for worker_id in form.worker_ids]
            assert {type(w.phase) for w in formed} == {Working, Idle}
            left = [w for w in alive.values() if isinstance(w.phase, Working) and w not in formed]
            assert all(w.is_departing for w in left)
            assert not left or any(isinstance(w.phase, Working) for w in formed)
            assert not any(isinstance(w.phase, Lost) and w.is_member for w in pool)
            assert form.newcomers == sum(isinstance(w.phase, Idle) for w in formed)
            assert len([w for w in formed if not w.is_departing]) <= 4
        case g.Enter():
            working = [w for w in alive.values() if isinstance(w.phase, Working)]
            assert all(w.meeting.has_met for w in working if w.meeting)
            assert any(w.meeting for w in working)
        case g.Form() as form:
            formed = [alive[worker_id] for worker_id in form.worker_ids]
            assert len(formed) >= min_workers
            assert len([w for w in formed if not w.is_departing]) <= 4
            may_begin = generation == 0 or not done or (checkpoint is None and begun_anew < 3)
            assert form.first_step > 0 or may_begin, "what was committed is not begun anew without need"
            assert all(isinstance(w.phase, Idle | Finished) for w in formed)
            assert not any(isinstance(w.phase, Working | Leaving) for w in alive.values())
            if form.from_checkpoint:
                assert form.first_step == checkpoint
                assert all(w.step < form.first_step for w in formed)
            else:
                assert form.first_step == max(w.step for w in formed)
        case g.Wait(until_s=until_s) | g.Hold(until_s=until_s):
            assert until_s is None or until_s > now_s
            assert until_s is not None or not any(w.awaited_since_s is not None for w in alive.values())
        case g.Complete(worker_id):
            assert alive[worker_id].has_model
        case g.Dismiss(worker_ids):
            left = [w for w in alive.values() if w.worker_id not in worker_ids]
            if not any(isinstance(w.phase, Working) for w in left):
                newest = max(w.step for w in alive.values() if isinstance(w.phase, Idle | Finished))
                is_kept = checkpoint is not None and checkpoint >= newest
                assert is_kept or any(w.step == newest for w in left), "the newest state must not leave"
        case g.Save(worker_id):
            present = [w for w in alive.values() if isinstance(w.phase, Idle | Finished)]
            assert all(w.is_departing for w in present)
            assert alive[worker_id].step == max(w.step for w in present) > (checkpoint or 0)
        case g.GiveUpOn(worker_ids) | g.Abort(worker_ids) | g.Silence(worker_ids):
            assert set(worker_ids) <= set(alive)
            assert worker_ids
        case g.Fail():
            assert not any(w.step and isinstance(w.phase, Idle | Finished) for w in alive.values())
