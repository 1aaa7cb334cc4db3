"""When generations form, break and end. Members and times are invented; nothing here waits."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloom.services.trainer import generations as g
from peerloom.services.trainer.generations import decide
from peerloom.services.trainer.members import Limits, Member, Phase

LIMITS = Limits(start_timeout_s=60, reconnect_timeout_s=15, agent_timeout_s=1, min_workers=1)


def members(*phases: Phase, step: int = 0, old: bool = True) -> list[Member]:
    """w0, w1, ... in these phases; `old` ones were there when the generation was formed."""
    return [Member(f"w{i}", phase, step, is_in_generation=old) for i, phase in enumerate(phases)]


def test_waits_for_every_worker_that_was_started() -> None:
    crew = [Member("w0", Phase.IDLE), Member("w1", Phase.STARTING, away_since_s=100.0)]
    assert decide(crew, 0, LIMITS, 120.0) == g.Wait("workers are starting", until_s=160.0)


def test_gives_up_on_a_worker_that_never_came() -> None:
    crew = [Member("w0", Phase.IDLE), Member("w1", Phase.STARTING, away_since_s=100.0)]
    assert decide(crew, 0, LIMITS, 160.0) == g.GiveUpOn(("w1",), "nothing was heard of it for too long")


def test_forms_the_first_generation_without_moving_state() -> None:
    decision = decide(members(Phase.IDLE, Phase.IDLE, Phase.IDLE, old=False), 0, LIMITS, 0.0)
    assert isinstance(decision, g.Form)
    assert decision.worker_ids == ("w0", "w1", "w2")
    assert (decision.first_step, decision.transfer_state) == (0, False)


def test_the_most_advanced_worker_becomes_rank_0_and_gives_its_state() -> None:
    crew = [Member("w0", Phase.IDLE, 7, True), Member("w1", Phase.IDLE, 8, True)]
    decision = decide(crew, 1, LIMITS, 0.0)
    assert isinstance(decision, g.Form)
    assert decision.worker_ids == ("w1", "w0")
    assert (decision.state_rank, decision.first_step, decision.transfer_state) == (0, 8, True)


@pytest.mark.parametrize("gone", [Phase.LOST, Phase.IDLE, Phase.SILENT])
def test_a_member_that_is_gone_breaks_the_generation_for_the_others_at_once(gone: Phase) -> None:
    decision = decide(members(Phase.WORKING, gone, Phase.WORKING), 1, LIMITS, 0.0)
    assert isinstance(decision, g.Abort)
    assert decision.worker_ids == ("w0", "w2")
    assert not decision.is_polite


def joins(*worker_ids: str) -> g.Form:
    """These, of whom the last is new, meet while the others work on from step 9."""
    return g.Form(worker_ids, 0, 9, True, f"a worker joins: {len(worker_ids)} workers meet", beside=True)


def test_a_newcomer_meets_the_others_while_they_work_and_joins_at_a_step_boundary() -> None:
    crew = [*members(Phase.WORKING, Phase.WORKING, step=9), Member("new", Phase.IDLE)]
    assert decide(crew, 1, LIMITS, 0.0) == joins("w0", "w1", "new")
    meeting = [replace(m, phase=Phase.WORKING, is_in_generation=True, meets_by_s=15.0) for m in crew]
    one_met = [replace(meeting[0], has_met=True), *meeting[1:]]
    assert decide(one_met, 2, LIMITS, 5.0) == g.Wait("the next generation meets", until_s=15.0)
    all_met = [replace(m, has_met=True) for m in meeting]
    assert decide(all_met, 2, LIMITS, 5.0) == g.Enter("3 workers have met")
    assert decide(one_met, 2, LIMITS, 15.0) == g.Abort(
        ("w0", "w1", "new"), "the workers of the next generation can't meet"
    )


@pytest.mark.parametrize("gone", [Phase.LOST, Phase.IDLE, Phase.SILENT])
def test_who_goes_while_they_meet_breaks_both_generations(gone: Phase) -> None:
    crew = [replace(m, meets_by_s=15.0, has_met=True) for m in members(Phase.WORKING, gone, step=9)]
    decision = decide(crew, 2, LIMITS, 5.0)
    assert isinstance(decision, g.Abort)
    assert (decision.worker_ids, decision.is_polite) == (("w0",), False)


def test_a_newcomer_waits_while_another_gets_the_state_and_is_not_needed_at_the_end() -> None:
    works, new = Member("w0", Phase.WORKING, 9, True), Member("new", Phase.IDLE)
    listens = Member("w1", Phase.WORKING, 0, True, is_ready=False)
    assert isinstance(decide([works, listens, new], 2, LIMITS, 0.0), g.Wait)
    finished = Member("w1", Phase.FINISHED, 10, True)
    assert isinstance(decide([works, finished, new], 2, LIMITS, 0.0), g.Wait)


def test_a_newcomer_joins_at_a_step_boundary_where_meeting_stops_the_others() -> None:
    crew = [*members(Phase.WORKING, Phase.WORKING, step=9), Member("new", Phase.IDLE)]
    nccl = replace(LIMITS, meets_beside=False)
    assert decide(crew, 1, nccl, 0.0) == g.Abort(("w0", "w1"), "a worker joins", is_polite=True)
    idle = [*members(Phase.IDLE, Phase.IDLE, step=9), Member("new", Phase.IDLE)]
    decision = decide(idle, 1, LIMITS, 0.0)
    assert isinstance(decision, g.Form)
    assert decision.worker_ids == ("w0", "w1", "new")
    assert decision.transfer_state


def test_a_newcomer_that_still_starts_holds_nobody_up() -> None:
    crew = [*members(Phase.IDLE, step=9), Member("new", Phase.STARTING, away_since_s=0.0)]
    assert isinstance(decide(crew, 1, LIMITS, 1.0), g.Form)


def test_a_departing_worker_is_let_go_once_others_have_the_state() -> None:
    stays, goes = members(Phase.WORKING, Phase.WORKING, step=5)
    goes = replace(goes, is_departing=True)
    decision = decide([stays, goes], 1, LIMITS, 0.0)
    assert decision == g.Abort(("w0", "w1"), "a node wants its slots back", is_polite=True)
    at_rest = [replace(stays, phase=Phase.IDLE), replace(goes, phase=Phase.IDLE)]
    assert decide(at_rest, 1, LIMITS, 0.0) == g.Dismiss(("w1",), "its node asked it to leave")


def test_a_departing_worker_with_the_newest_state_hands_it_over_first() -> None:
    goes = Member("w0", Phase.IDLE, 9, is_in_generation=True, is_departing=True)
    decision = decide([goes, Member("new", Phase.IDLE)], 1, LIMITS, 0.0)
    assert isinstance(decision, g.Form)
    assert decision.worker_ids == ("w0", "new")


def test_a_departing_worker_waits_for_its_replacement_as_long_as_it_may() -> None:
    goes = Member("w0", Phase.WORKING, 9, True, is_departing=True, leave_by_s=10.0)
    stays = Member("w1", Phase.WORKING, 9, True)
    assert decide([goes, stays], 1, LIMITS, 5.0) == g.Wait("the generation works", until_s=10.0)
    come = Member("new", Phase.IDLE)
    assert decide([goes, stays, come], 1, LIMITS, 5.0) == joins("w1", "new")
    met = [
        replace(m, phase=Phase.WORKING, is_in_generation=True, meets_by_s=9.0, has_met=True)
        for m in (stays, come)
    ]
    assert decide([goes, *met], 2, LIMITS, 6.0) == g.Enter("2 workers have met")
    leaves = g.Abort(("w0", "w1"), "a node wants its slots back", is_polite=True)
    assert decide([goes, stays], 1, LIMITS, 10.0) == leaves


def test_a_newcomer_that_has_to_go_again_is_let_go_at_once() -> None:
    crew = [
        Member("w0", Phase.WORKING, 9, True),
        Member("new", Phase.IDLE, is_departing=True, leave_by_s=99.0),
    ]
    assert decide(crew, 1, LIMITS, 5.0) == g.Dismiss(("new",), "its node asked it to leave")


def test_a_departing_worker_stays_until_its_heir_has_the_state() -> None:
    goes = Member("w0", Phase.WORKING, 9, True, is_departing=True)
    listens = Member("new", Phase.WORKING, 0, True, is_ready=False)
    assert isinstance(decide([goes, listens], 2, LIMITS, 99.0), g.Wait)
    ready = replace(listens, is_ready=True, step=9)
    assert isinstance(decide([goes, ready], 2, LIMITS, 99.0), g.Abort)


def test_the_last_worker_stores_its_state_before_it_leaves() -> None:
    alone = Member("w0", Phase.WORKING, 9, is_in_generation=True, is_departing=True)
    decision = decide([alone], 1, LIMITS, 5.0, checkpoint_step=3)
    assert decision == g.Abort(("w0",), "nobody stays, so the state is stored", is_polite=True)
    rests = replace(alone, phase=Phase.IDLE)
    assert decide([rests], 1, LIMITS, 5.0, checkpoint_step=3) == g.Save(
        "w0", "its node wants it to leave, and nobody else has its state"
    )
    asked = replace(rests, save_asked_s=5.0)
    held = decide([asked], 1, LIMITS, 6.0, checkpoint_step=3)
    assert held == g.Hold("waiting for the state to be stored", 5.0 + g.SAVE_LIMIT_S)
    assert isinstance(decide([asked], 1, LIMITS, 5.0 + g.SAVE_LIMIT_S, checkpoint_step=3), g.Save)
    kept = decide([asked], 1, LIMITS, 6.0, checkpoint_step=9)
    assert kept == g.Dismiss(("w0",), "its state is kept in the checkpoint of step 9")


def test_a_last_worker_that_may_stay_after_all_goes_on() -> None:
    alone = Member("w0", Phase.IDLE, 9, is_in_generation=True, save_asked_s=5.0)
    assert isinstance(decide([alone], 1, LIMITS, 6.0), g.Form)


def test_a_replacement_is_taken_although_the_departing_worker_fills_the_job() -> None:
    goes = Member("w0", Phase.WORKING, 9, True, is_departing=True, leave_by_s=10.0)
    one = replace(LIMITS, max_workers=1)
    decision = decide([goes, Member("new", Phase.IDLE)], 1, one, 5.0)
    assert decision == joins("w0", "new")


def test_waits_until_all_have_left_before_the_next_generation() -> None:
    leaving = Member("w1", Phase.LEAVING, is_in_generation=True, away_since_s=10.0)
    decision = decide([*members(Phase.IDLE), leaving], 1, LIMITS, 20.0)
    assert decision == g.Wait("workers are leaving the generation", until_s=70.0)


def test_a_broken_line_is_forgiven_until_the_limit() -> None:
    away = replace(members(Phase.WORKING)[0], away_since_s=10.0)
    assert decide([away], 1, LIMITS, 24.9) == g.Wait("the generation works", until_s=25.0)
    assert isinstance(decide([away], 1, LIMITS, 25.0), g.GiveUpOn)


def test_a_broken_line_to_a_node_whose_agent_is_away_too_is_a_dead_node() -> None:
    away = replace(members(Phase.WORKING)[0], away_since_s=10.0, is_agent_away=True)
    assert isinstance(decide([away], 1, LIMITS, 11.0), g.GiveUpOn)


def test_a_quiet_worker_is_left_behind_and_may_come_back() -> None:
    quiet = replace(members(Phase.WORKING)[0], quiet_at_s=30.0)
    assert decide([quiet], 1, LIMITS, 29.0) == g.Wait("the generation works", until_s=30.0)
    assert decide([quiet], 1, LIMITS, 30.0) == g.Silence(("w0",), "it shows no sign of life")
    alone = replace(quiet, phase=Phase.SILENT, away_since_s=30.0)
    assert isinstance(decide([alone], 1, LIMITS, 31.0), g.Hold)
    assert isinstance(decide([alone], 1, LIMITS, 90.0), g.GiveUpOn)


def test_holds_with_fewer_than_min_workers_and_fails_with_none() -> None:
    limits = replace(LIMITS, min_workers=2)
    decision = decide(members(Phase.IDLE, Phase.LOST, step=3), 1, limits, 0.0)
    assert decision == g.Hold("waiting for nodes: 1 of at least 2 workers are there", None)
    assert isinstance(decide(members(Phase.LOST, Phase.LOST), 1, limits, 0.0), g.Fail)


def test_completes_when_all_have_finished_and_one_holds_the_model() -> None:
    crew = [Member("w0", Phase.FINISHED, 10, True, has_model=True), Member("w1", Phase.FINISHED, 10, True)]
    assert decide(crew, 1, LIMITS, 0.0) == g.Complete("w0", "all workers have finished")
    assert isinstance(decide([*crew, Member("new", Phase.IDLE)], 1, LIMITS, 0.0), g.Complete)


def test_if_the_holder_of_the_model_is_lost_the_others_save_it_again() -> None:
    crew = [Member("w0", Phase.LOST, 10, True, has_model=True), Member("w1", Phase.FINISHED, 10, True)]
    decision = decide(crew, 1, LIMITS, 0.0)
    assert isinstance(decision, g.Form)
    assert decision.worker_ids == ("w1",)


def test_waits_for_those_who_still_work_at_the_end() -> None:
    crew = [Member("w0", Phase.FINISHED, 10, True, has_model=True), Member("w1", Phase.WORKING, 9, True)]
    assert decide(crew, 1, LIMITS, 0.0) == g.Wait("the generation works", until_s=None)


def test_without_any_state_the_checkpoint_is_what_the_job_goes_on_from() -> None:
    lost = Member("w0", Phase.LOST, 40, is_in_generation=True)
    assert isinstance(decide([lost], 1, LIMITS, 0.0), g.Fail)
    held = decide([lost], 1, LIMITS, 0.0, checkpoint_step=30)
    assert held == g.Hold("waiting for at least 1 workers, to go on from the checkpoint of step 30", None)
    starting = Member("new", Phase.STARTING, away_since_s=0.0)
    assert isinstance(decide([lost, starting], 1, LIMITS, 1.0, checkpoint_step=30), g.Hold)
    decision = decide([lost, Member("new", Phase.IDLE)], 1, LIMITS, 1.0, checkpoint_step=30)
    assert isinstance(decision, g.Form)
    assert (decision.from_checkpoint, decision.first_step, decision.worker_ids) == (True, 30, ("new",))


def test_one_that_was_to_get_the_state_does_not_begin_anew_without_it() -> None:
    """Its generation broke before the state had come, and the one that had it is dead."""
    empty = Member("w1", Phase.IDLE, 0, is_in_generation=True)
    assert isinstance(decide([empty], 2, LIMITS, 0.0, committed_step=50), g.Fail)
    decision = decide([empty], 2, LIMITS, 0.0, checkpoint_step=40, committed_step=50)
    assert isinstance(decision, g.Form)
    assert (decision.from_checkpoint, decision.first_step) == (True, 40)
    assert isinstance(decide([empty], 2, LIMITS, 0.0), g.Form), "nothing was committed: nothing is lost"


def test_a_state_older_than_the_checkpoint_is_not_gone_on_from() -> None:
    old = Member("w0", Phase.IDLE, 10, is_in_generation=True)
    decision = decide([old], 2, LIMITS, 0.0, checkpoint_step=40, committed_step=50)
    assert isinstance(decision, g.Form)
    assert (decision.from_checkpoint, decision.first_step) == (True, 40)


def test_more_workers_than_wanted_are_let_go_those_with_the_newest_state_stay() -> None:
    two = replace(LIMITS, max_workers=2)
    back = Member("back", Phase.IDLE, 7)
    decision = decide([*members(Phase.WORKING, Phase.WORKING, step=9), back], 3, two, 0.0)
    assert decision == g.Dismiss(("back",), "the job has all the workers it can use")
    decision = decide([back, *members(Phase.IDLE, Phase.IDLE, step=9)], 3, two, 0.0)
    assert decision == g.Dismiss(("back",), "the job has all the workers it can use")


member = st.builds(
    Member,
    worker_id=st.uuids().map(str),
    phase=st.sampled_from(Phase),
    step=st.integers(0, 50),
    is_in_generation=st.booleans(),
    is_ready=st.booleans(),
    meets_by_s=st.none() | st.floats(0, 100),
    has_met=st.booleans(),
    is_departing=st.booleans(),
    leave_by_s=st.none() | st.floats(0, 100),
    save_asked_s=st.none() | st.floats(0, 100),
    has_model=st.booleans(),
    away_since_s=st.none() | st.floats(0, 100),
    is_agent_away=st.booleans(),
    quiet_at_s=st.none() | st.floats(0, 100),
)


@settings(max_examples=1000)
@given(
    st.lists(member, max_size=6),
    st.integers(0, 3),
    st.floats(0, 200),
    st.integers(1, 4),
    st.none() | st.integers(1, 50),
    st.integers(0, 50),
)
def test_every_decision_makes_sense(
    crew: list[Member], generation: int, now_s: float, min_workers: int, checkpoint: int | None, done: int
) -> None:
    """Whatever the state: nobody lost is used, no group forms beside a working one, waits have an end."""
    limits = replace(LIMITS, min_workers=min_workers, max_workers=4, meets_beside=min_workers % 2 == 1)
    alive = {m.worker_id: m for m in crew if m.phase is not Phase.LOST}
    match decide(crew, generation, limits, now_s, checkpoint, done):
        case g.Form(beside=True) as form:
            formed = [alive[worker_id] for worker_id in form.worker_ids]
            assert {m.phase for m in formed} == {Phase.WORKING, Phase.IDLE}
            left = [m for m in alive.values() if m.phase is Phase.WORKING and m not in formed]
            assert all(m.is_departing for m in left)
            assert not left or any(m.phase is Phase.WORKING for m in formed)
            assert not any(m.phase is Phase.LOST and m.is_in_generation for m in crew)
            assert form.transfer_state
            assert len([m for m in formed if not m.is_departing]) <= 4
        case g.Enter():
            working = [m for m in alive.values() if m.phase is Phase.WORKING]
            assert all(m.has_met for m in working if m.meets_by_s is not None)
            assert any(m.meets_by_s is not None for m in working)
        case g.Form() as form:
            formed = [alive[worker_id] for worker_id in form.worker_ids]
            assert len(formed) >= min_workers
            assert len([m for m in formed if not m.is_departing]) <= 4
            assert generation == 0 or form.first_step > 0 or not done, "what was committed is not begun anew"
            assert all(m.phase in (Phase.IDLE, Phase.FINISHED) for m in formed)
            assert not any(m.phase in (Phase.WORKING, Phase.LEAVING) for m in alive.values())
            if form.from_checkpoint:
                assert form.first_step == checkpoint
                assert all(m.step < form.first_step for m in formed)
            else:
                assert form.first_step == max(m.step for m in formed)
        case g.Wait(until_s=until_s) | g.Hold(until_s=until_s):
            assert until_s is None or until_s > now_s
            away = [m for m in alive.values() if m.away_since_s is not None]
            assert until_s is not None or all(m.phase is Phase.FINISHED for m in away)
        case g.Complete(worker_id):
            assert alive[worker_id].has_model
        case g.Dismiss(worker_ids):
            left = [m for m in alive.values() if m.worker_id not in worker_ids]
            if not any(m.phase is Phase.WORKING for m in left):
                newest = max(m.step for m in alive.values() if m.phase in (Phase.IDLE, Phase.FINISHED))
                is_kept = checkpoint is not None and checkpoint >= newest
                assert is_kept or any(m.step == newest for m in left), "the newest state must not leave"
        case g.Save(worker_id):
            present = [m for m in alive.values() if m.phase in (Phase.IDLE, Phase.FINISHED)]
            assert all(m.is_departing for m in present)
            assert alive[worker_id].step == max(m.step for m in present) > (checkpoint or 0)
        case g.GiveUpOn(worker_ids) | g.Abort(worker_ids) | g.Silence(worker_ids):
            assert set(worker_ids) <= set(alive)
            assert worker_ids
        case g.Fail():
            assert not any(m.step and m.phase in (Phase.IDLE, Phase.FINISHED) for m in alive.values())
