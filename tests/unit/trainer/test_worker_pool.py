"""A job's workers: what they say, what they are told, and what becomes of them when they don't speak."""

import pytest
from session_job import Job, begin, prepared_job, restarted, working_job
from trainer_room import prepared_for, worker

from peerloom.services.trainer.jobs.plan_entries import unfit_nodes
from peerloom.services.trainer.workers.failure_detector import FLOOR_S
from peerloom.services.trainer.workers.state import (
    Finished,
    Idle,
    Leaving,
    Lost,
    Silent,
    Starting,
    Working,
)
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.trainer_pb2 import (
    AbortGeneration,
    Checkpoint,
    EpochProgress,
    StepProgress,
    StoreEntry,
    WorkerAborted,
    WorkerBeat,
    WorkerFailed,
    WorkerFinished,
    WorkerHello,
    WorkerLeaving,
    WorkerMet,
    WorkerReady,
    WorkerSessionRequest,
    WorkerStaying,
)


@pytest.fixture
def job() -> Job:
    """Two workers on two nodes that have loaded their task."""
    return prepared_job()


@pytest.fixture
def working() -> Job:
    """The two work in the first generation, at step 3."""
    return working_job()


def test_a_worker_is_prepared_then_waits_for_a_generation(job: Job) -> None:
    assert job.state(1).phase == job.state(2).phase == Idle()
    assert job.streams.told("worker-1") == ["prepare", "recorded"]
    assert job.record.job.progress.total_steps == 20


def test_a_worker_that_is_faster_than_its_node_s_answer_is_greeted_once_it_is_known() -> None:
    job = Job()
    job.hello(1)
    assert job.streams.told("worker-1") == [], "its job doesn't know it yet"
    job.sessions.expect([worker(1)])
    assert job.streams.told("worker-1") == ["prepare", "recorded"]
    assert [each.worker_id for each in job.record.job.workers] == ["worker-1"]


def test_a_worker_that_loads_may_do_so_for_as_long_as_it_lives() -> None:
    job = Job()
    job.sessions.expect([worker(1)])
    job.hello(1)
    job.room.clock.advance(50.0)
    job.says(1, beat=WorkerBeat())
    assert job.state(1).phase == Starting(heard_s=50.0)


def test_progress_enters_the_record_and_asks_for_no_decision(working: Job) -> None:
    working.reports(1, 1, 20)
    working.says(1, epoch=EpochProgress(epoch=1, metric_name="accuracy"))
    assert working.state(1).step == 20
    change = working.record.take_change()
    assert change is not None
    assert [event.WhichOneof("event") for event in change.events] == ["step"] * 20 + ["epoch"]


def test_who_works_is_ready_then_finished(working: Job) -> None:
    assert working.state(1).phase == Working()
    working.reports(1, 1, 20)
    said = WorkerFinished(generation=1, model=Artifact(digest="a" * 64), parameters_digest="b" * 64)
    working.says(1, finished=said)
    assert working.state(1).phase == Finished(said)
    assert (working.state(1).step, working.state(1).has_model) == (20, True)


def test_a_word_on_an_older_generation_counts_for_nothing(working: Job) -> None:
    begin(working, 1, 2)
    working.says(1, ready=WorkerReady(generation=1))
    working.says(1, finished=WorkerFinished(generation=1))
    working.says(1, aborted=WorkerAborted(generation=1, committed_step=9))
    assert working.state(1).phase == Working(is_ready=False)


def test_a_broken_session_is_waited_for_and_forgiven(working: Job) -> None:
    working.room.clock.advance(2.0)
    working.goes(1)
    working.room.clock.advance(3.0)
    assert working.state(1).awaited_since_s == 2.0
    working.hello(1, step=5, generation=1)
    assert working.state(1).phase == Working()
    assert working.state(1).step == 5


def test_who_comes_back_from_no_generation_waits_for_the_next(working: Job) -> None:
    working.goes(1)
    working.hello(1, step=5)
    assert working.state(1).phase == Idle(is_member=True)


def test_signs_of_life_are_expected_at_the_pace_that_was_seen(working: Job) -> None:
    """Beats every 0.1 s earn the shortest limit; a broken session says nothing."""
    for _ in range(20):
        working.room.clock.advance(0.1)
        working.says(1, beat=WorkerBeat())
        working.pool.states()
    now_s = working.room.clock.monotonic_s()
    assert working.state(1).contact.quiet_at_s == pytest.approx(now_s + FLOOR_S)
    working.goes(1)
    assert working.state(1).contact.quiet_at_s is None


def test_a_pause_of_the_trainer_s_own_is_not_held_against_its_workers(working: Job) -> None:
    working.pool.states()
    working.says(1, beat=WorkerBeat())
    working.room.clock.advance(60.0)
    quiet_at_s = working.state(1).contact.quiet_at_s
    assert quiet_at_s is not None
    assert quiet_at_s > 60.0


def test_who_falls_silent_is_left_behind_and_comes_back_idle(working: Job) -> None:
    abort = AbortGeneration(generation=1)
    working.pool.leave_behind(["worker-1"], abort)
    assert working.state(1).phase == Silent(since_s=0.0)
    assert working.streams.told("worker-1") == ["abort"]
    working.says(1, aborted=WorkerAborted(generation=1, committed_step=3))
    assert working.state(1).phase == Idle(is_member=True)
    assert working.evidence() == []


def test_what_a_worker_that_was_left_behind_tells_does_not_count_until_it_works_again(working: Job) -> None:
    working.reports(2, 1, 3)
    working.pool.leave_behind(["worker-1"], AbortGeneration(generation=1))
    working.reports(1, 4, 4)
    working.says(1, epoch=EpochProgress(epoch=1))
    assert (working.record.job.progress.step, working.record.job.progress.epoch) == (3, 0)
    working.says(1, aborted=WorkerAborted(generation=1, committed_step=4))
    begin(working, 1, 2)
    working.reports(1, 4, 4)
    assert working.record.job.progress.step == 4


def test_a_lost_worker_is_recorded_and_evidence_against_its_node(working: Job) -> None:
    working.pool.lose("worker-1", "its process was killed by signal 9")
    working.pool.lose("worker-1", "a second reason")
    assert working.state(1).phase == Lost(is_member=True)
    assert working.record.worker("worker-1").end_reason == "its process was killed by signal 9"
    assert working.pool.last_loss == "worker-1 on ada: its process was killed by signal 9"
    assert working.evidence() == ["node-ada"]
    working.streams.sent.clear()
    working.hello(1)
    assert working.streams.told("worker-1") == ["end"], "the job went on without it"


def test_a_node_that_went_with_its_agent_is_the_registry_s_to_tell_of(working: Job) -> None:
    working.pool.agent_away("node-ada")
    assert working.state(1).contact.is_agent_away
    assert not working.state(2).contact.is_agent_away
    working.pool.lose("worker-1", "nothing was heard of it for too long")
    assert working.evidence() == []


def test_an_agent_that_is_back_has_only_the_workers_that_it_tells_of(working: Job) -> None:
    """Started anew it tells of what it was given since: worker-1 went with the agent before."""
    working.pool.agent_away("node-ada")
    working.pool.agent_told("worker-7")
    assert working.state(1).contact.is_agent_away
    working.pool.give_up_on("worker-1", "nothing was heard of it for too long")
    assert working.evidence() == []


def test_how_a_worker_ended_counts_against_its_node_though_its_agent_was_away_meanwhile(working: Job) -> None:
    working.pool.agent_away("node-ada")
    working.pool.agent_told("worker-1")
    assert not working.state(1).contact.is_agent_away
    working.pool.lose("worker-1", "its process was killed by signal 9")
    assert working.evidence() == ["node-ada"]


def test_the_workers_lost_before_a_generation_are_forgotten_with_it(working: Job) -> None:
    working.pool.lose("worker-1", "it died")
    begin(working, 2)
    assert [state.worker_id for state in working.pool.states()] == ["worker-2"]
    assert working.state(2).phase == Working(is_ready=False)


def test_who_isn_t_connected_when_a_generation_begins_is_away(working: Job) -> None:
    working.goes(1)
    working.room.clock.advance(1.0)
    begin(working, 1, 2)
    assert working.state(1).phase == Working(is_ready=False, away_since_s=1.0)
    assert working.state(2).phase == Working(is_ready=False)


def test_a_generation_that_meets_beside_is_entered_by_those_who_met(working: Job) -> None:
    """worker-2 wants to go, so the newcomer meets with worker-1 alone."""
    working.sessions.expect([worker(3, "eve")])
    working.hello(3)
    working.says(3, prepared=prepared_for(working.record.job.spec, samples=200))
    begin(working, 1, 3, beside=True)
    for number in (1, 3):
        assert working.state(number).meeting is not None
        working.says(number, met=WorkerMet(generation=2))
    meetings = [working.state(number).meeting for number in (1, 3)]
    assert all(meeting is not None and meeting.has_met and meeting.by_s == 15.0 for meeting in meetings)
    assert working.pool.enter_generation(AbortGeneration(generation=1, at_step=6)) == ["worker-1", "worker-3"]
    assert [working.state(number).meeting for number in (1, 3)] == [None, None]
    assert working.state(2).phase == Leaving(since_s=0.0, is_member=False)


def test_who_wants_to_leave_is_let_go_without_blame(working: Job) -> None:
    working.says(1, leaving=WorkerLeaving(reason="its owner is back", grace_s=5.0))
    assert working.pool.someone_departs.is_set()
    assert working.pool.count() == 1
    departure = working.state(1).departure
    assert departure is not None
    assert departure.leave_by_s == 5.0
    working.says(1, leaving=WorkerLeaving(reason="its owner is back", grace_s=9.0))
    assert working.state(1).departure == departure, "said again, the earlier time holds"
    working.pool.end_grace()
    assert working.state(1).is_due(0.0)
    working.pool.dismiss(["worker-1"], "its node asked it to leave")
    assert working.record.worker("worker-1").end_reason == "its owner is back"
    assert working.streams.told("worker-1") == ["end"]
    assert working.evidence() == []


def test_who_stays_after_all_is_not_let_go_for_the_old_reason(working: Job) -> None:
    working.says(1, leaving=WorkerLeaving(reason="its owner is back", grace_s=5.0))
    working.says(1, staying=WorkerStaying())
    assert working.state(1).departure is None
    working.pool.dismiss(["worker-1"], "the job has all the workers it can use")
    assert working.record.worker("worker-1").end_reason == "the job has all the workers it can use"


def test_a_replacement_that_starts_keeps_the_grace_of_those_who_want_to_go(working: Job) -> None:
    working.says(1, leaving=WorkerLeaving(grace_s=5.0))
    working.sessions.expect([worker(3)])
    working.pool.end_grace()
    assert not working.state(1).is_due(0.0)


def test_who_lacks_memory_is_lost_and_what_would_come_on_any_node_ends_the_job(working: Job) -> None:
    working.says(1, failed=WorkerFailed(reason="its slot has too little memory"))
    assert (type(working.state(1).phase), working.streams.told("worker-1")[-1]) == (Lost, "end")
    assert unfit_nodes(working.record.job) == {"node-ada"}
    assert not working.evidence(), "not its node's fault"
    working.says(2, failed=WorkerFailed(reason="there is no file /data", is_permanent=True))
    assert working.pool.failure == "worker-2 on bob: there is no file /data"


def test_a_refused_checkpoint_is_fallen_back_from_once(working: Job) -> None:
    older, newer = (Checkpoint(step=n, artifact=Artifact(digest=c * 64)) for n, c in ((2, "a"), (4, "b")))
    working.record.step_committed(StepProgress(step=4, epoch=1, samples=10))
    working.record.checkpoint_kept(older)
    working.record.checkpoint_kept(newer)
    for number in (1, 2):
        refused = WorkerAborted(generation=1, reason="it doesn't fit", refused_checkpoint="b" * 64)
        working.says(number, aborted=refused)
    assert working.record.job.checkpoint.step == 2
    assert working.checkpoints.failure == ""
    working.checkpoints.refused("a" * 64, "it doesn't fit either")
    assert working.checkpoints.failure.endswith("it doesn't fit either; there is no older one")


def test_after_a_restart_of_the_trainer_its_workers_are_waited_for(working: Job) -> None:
    """worker-2 never was in a generation; worker-3 came back before the job was looked at again."""
    working.sessions.expect([worker(3)])
    begin(working, 1, 3)
    again = restarted(working, resumes=False)
    hello = WorkerHello(worker_id="worker-3", committed_step=8, generation=2)
    again.streams.hellos["worker-3"] = WorkerSessionRequest(hello=hello)
    again.sessions.resume()
    assert again.state(1).phase == Working(away_since_s=0.0)
    assert again.state(2).phase == Starting(heard_s=0.0)
    assert (again.state(3).phase, again.state(3).step) == (Working(), 8)


def test_what_is_stored_is_told_to_all(working: Job) -> None:
    working.pool.send_recorded()
    working.pool.ask_for_signs()
    assert working.streams.told("worker-1") == working.streams.told("worker-2") == ["recorded", "recorded"]


def test_measured_speeds_are_told_by_those_who_know_them(working: Job) -> None:
    working.says(1, beat=WorkerBeat(compute_s_per_sample=0.25))
    assert working.pool.slots.speeds() == {"worker-1": 0.25}


def test_members_hear_each_other_and_who_says_too_much_is_let_go(working: Job) -> None:
    working.rendezvous.begin(1, ["worker-1", "worker-2"])
    working.says(2, entry=StoreEntry(generation=1, key="0/1", value=b"here"))
    assert working.streams.told("worker-1") == working.streams.told("worker-2") == ["entry"]
    working.hello(1, 3, 1)
    assert working.streams.told("worker-1") == ["prepare", "entry", "recorded"]
    working.says(2, entry=StoreEntry(generation=1, key="0/1", value=bytes(5000)))
    assert isinstance(working.state(2).phase, Lost)
    assert working.streams.told("worker-2") == ["end"]


def test_after_a_restart_of_the_trainer_members_hear_each_other_again(working: Job) -> None:
    again = restarted(working)
    again.hello(1, 3, 1)
    again.streams.told("worker-1")
    again.says(1, entry=StoreEntry(generation=1, key="0/0", value=b"here"))
    assert again.streams.told("worker-1") == ["entry"]
    again.hello(2, 3, 1)
    assert "entry" in again.streams.told("worker-2")


def test_who_was_given_up_and_speaks_again_is_told_to_end(working: Job) -> None:
    """It was frozen for long, and its session stood: it must not keep the slot that its replacement needs."""
    working.pool.lose("worker-1", "nothing was heard of it for too long")
    working.streams.told("worker-1")
    working.says(1, beat=WorkerBeat(committed_step=3))
    assert working.streams.told("worker-1") == ["end"]
