"""Who is told to leave a generation, and what becomes of those who can't answer that they did."""

from session_job import Job, begin, restarted, working_job

from peerloom.services.trainer.workers.state import Idle, Leaving
from peerloom.v1.trainer_pb2 import AbortGeneration, HeldState, WorkerFinished


def told_to_leave(job: Job, generation: int) -> list[int]:
    """The generations that worker-1 is told to leave when it says hello, at step 3 of this one."""
    job.streams.sent.clear()
    job.hello(1, step=3, generation=generation)
    told = [message for to, message in job.streams.sent if to == "worker-1"]
    assert told[0].HasField("prepare")
    return [message.abort.generation for message in told if message.HasField("abort")]


def test_who_was_told_to_leave_and_comes_back_still_working_is_told_again() -> None:
    job = working_job()
    job.pool.leave(["worker-1"], AbortGeneration(generation=1))
    job.goes(1)
    assert told_to_leave(job, generation=1) == [1]
    assert isinstance(job.state(1).phase, Leaving)


def test_it_is_told_of_the_newest_one_which_it_may_be_about_to_enter() -> None:
    """It says hello from the first one, and the word that the second one is over was lost on its way."""
    job = working_job()
    begin(job, 1, 2)
    job.pool.leave(["worker-1"], AbortGeneration(generation=2))
    job.goes(1)
    assert told_to_leave(job, generation=1) == [2]


def test_one_that_has_finished_in_the_generation_before_has_left_it() -> None:
    """A trainer formed the second one and died before its workers heard of it; they finished the first."""
    job = working_job()
    begin(job, 1, 2)
    again = restarted(job)
    again.pool.leave(["worker-1"], AbortGeneration(generation=2))
    again.hello(1, step=20, generation=1)
    again.says(1, finished=WorkerFinished(generation=1, parameters_digest="b" * 64))
    assert (again.state(1).phase, again.state(1).step) == (Idle(is_member=True), 20)


def test_it_still_has_the_states_of_its_stages_unless_they_can_t_be() -> None:
    for stage, held in ((1, ((1, 20),)), (2, ())):
        job = working_job(plan="pipeline=2")
        job.pool.leave(["worker-1"], AbortGeneration(generation=1))
        begin(job, 2)
        said = WorkerFinished(generation=1, held=[HeldState(stage=stage, step=20)])
        job.says(1, finished=said)
        assert job.state(1).held == held
