"""A job from its submission to its end, in a trainer without a network: nodes and workers are scripted."""

import asyncio
from typing import Any

import pytest
from scripted_worker import ScriptedWorker
from trainer_room import DEADLINE_S, until
from trainer_site import CHECKPOINT, SPEC, Site, finish, reported, step

from peerloom.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from peerloom.kit.limits import ENDED_STATES
from peerloom.services.trainer.models.checkpoints import CheckpointKeeper
from peerloom.services.trainer.nodes.replacing import JobNodes
from peerloom.services.trainer.workers.pool import WorkerPool
from peerloom.v1.trainer_pb2 import (
    Job,
    JobSpec,
    JobState,
    NetworkTraffic,
    WorkerAborted,
    WorkerFinished,
    WorkerReady,
    WorkerSessionRequest,
)


async def test_a_job_becomes_a_model() -> None:
    async with Site().serving() as site:
        job_id = await site.submit()
        worker = await site.working()
        finish(worker)
        job = await site.ended(job_id)
        assert (job.state, job.state_reason) == (JobState.JOB_STATE_SUCCEEDED, "the model is trained")
        assert (job.result.model.digest, job.progress.step) == ("f" * 64, 4)
        assert [each.end_reason for each in job.workers] == ["the job ended"]
        await worker.hear("end")
        assert site.agent.stopped[-1] == job_id
        # What is recorded is in the order in which a watcher hears of it.
        assert site.room.kinds_written(job_id) == [
            "state_change",
            "answer",
            "state_change",
            "generation_formed",
            "state_change",
            *["step"] * 4,
            "epoch",
            "state_change",
            "evaluation",
            *["state_change"] * 2,
        ]
        facts = [(fact.node_id, fact.speed_gflops, fact.slots) for fact in site.room.neighbours.evidence]
        assert facts == [("node-ada", 2.0, 1)]
        assert site.room.files.holds == []


async def test_a_worker_hears_what_is_stored() -> None:
    async with Site().serving() as site:
        await site.submit()
        worker = await site.working()
        async with asyncio.timeout(DEADLINE_S):
            while (await worker.hear("recorded")).recorded.step < 2:
                pass
        assert site.job(site.workers[0]._job_id).progress.step == 2


async def test_a_lost_worker_s_job_goes_on_from_its_checkpoint_with_another() -> None:
    async with Site().serving() as site:
        job_id = await site.submit()
        first = await site.working()
        first.say(WorkerSessionRequest(checkpoint=CHECKPOINT))
        await until(lambda: site.job(job_id).HasField("checkpoint"))
        site.agent.end(first.worker_id, -9)
        second = await site.worker()
        configure = (await second.hear("configure")).configure
        assert (configure.generation, configure.first_step) == (2, 2)
        assert configure.checkpoint_digest == CHECKPOINT.artifact.digest
        second.say(WorkerSessionRequest(ready=WorkerReady(generation=2)))
        finish(second, generation=2)
        job = await site.ended(job_id)
        assert job.state == JobState.JOB_STATE_SUCCEEDED, job.state_reason
        assert [(s.first_step, s.last_step) for s in job.ledger.stretches] == [(1, 2), (3, 4)]
        assert site.room.files.holds == [], "a job that has succeeded needs no checkpoint"


async def test_a_job_that_has_ended_leaves_no_task_and_no_hold_behind() -> None:
    """Its newest checkpoint was on its way: that went on after the job's end once, and held it for ever."""
    async with Site().serving() as site:
        others, transfers = asyncio.all_tasks(), site.room.transfers
        job_id = await site.submit()
        worker = await site.working()
        transfers.goes_on.clear()
        worker.say(WorkerSessionRequest(checkpoint=CHECKPOINT))
        await transfers.begun.wait()
        await site.room.jobs.cancel(job_id)
        transfers.goes_on.set()
        await worker.disconnect()
        await until(lambda: asyncio.all_tasks() <= others)
        assert transfers.taken == [], "it was given up"
        assert site.room.files.holds == []
        assert not site.job(job_id).HasField("checkpoint")


@pytest.mark.parametrize(
    ("owner", "task"),
    [
        (JobNodes, "watch_forever"),
        (JobNodes, "reinforce_forever"),
        (JobNodes, "stop_forever"),
        (WorkerPool, "ask_for_signs"),
        (WorkerPool, "send_recorded"),
    ],
)
async def test_a_bug_in_any_task_of_a_job_fails_the_job_with_a_clear_state(
    monkeypatch: pytest.MonkeyPatch, owner: type, task: str
) -> None:
    async def break_later(*_: object) -> None:
        raise ValueError("a planted bug")

    def break_now(*_: object) -> None:
        raise ValueError("a planted bug")

    monkeypatch.setattr(owner, task, break_later if task.endswith("forever") else break_now)
    async with Site().serving() as site:
        job = await site.ended(await site.submit())
        assert job.state == JobState.JOB_STATE_FAILED
        assert job.state_reason == "a bug of the trainer's: ValueError: a planted bug"
        assert site.agent.stopped[-1] == job.job_id, "its slots are free"


async def test_a_task_that_just_ends_fails_the_job_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def end(*_: object) -> None:
        """Returns as if its work were done."""

    monkeypatch.setattr(JobNodes, "watch_forever", end)
    async with Site().serving() as site:
        job = await site.ended(await site.submit())
        assert job.state == JobState.JOB_STATE_FAILED
        assert job.state_reason.endswith("ended before its job")


async def test_a_bug_while_slots_are_freed_leaves_no_job_without_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Site().serving() as site:
        job_id = await site.submit()
        await site.working()

        async def fail(*_: object) -> None:
            raise ValueError("a planted bug")

        monkeypatch.setattr(site.room.recruiter, "stop_on", fail)
        await site.room.jobs.cancel(job_id)
        assert site.job(job_id).state == JobState.JOB_STATE_CANCELLED


async def test_a_job_without_compute_ends_at_once_and_its_evidence_is_told() -> None:
    site = Site(slots=0)
    async with site.serving():
        job = await site.ended(await site.submit())
        assert job.state == JobState.JOB_STATE_NO_COMPUTE
        await until(lambda: site.room.neighbours.evidence)
        assert [fact.node_id for fact in site.room.neighbours.evidence] == ["node-ada"]


async def test_what_the_selector_refuses_to_look_for_ends_the_job_with_its_reason() -> None:
    """It was asked again for ever, and the job stayed QUEUED."""
    async with Site().serving() as site:
        refusal = InvalidArgumentError.of_field("requirements.min_slots", 1025, "from 0 to 1,024")
        site.room.neighbours.selector_refuses = refusal
        job = await site.ended(await site.submit())
        assert (job.state, job.state_reason) == (JobState.JOB_STATE_FAILED, refusal.message)


async def test_workers_whose_parameters_differ_leave_no_model() -> None:
    async with Site(slots=2).serving() as site:
        job_id = await site.submit()
        first, second = [await site.worker(), await site.worker()]
        await second.hear("configure")
        said = WorkerFinished(generation=1, parameters_digest="1" * 64)
        second.say(WorkerSessionRequest(finished=said))
        await first.hear("configure")
        for number in (1, 2):
            first.say(reported(step(number)))
        finish(first)
        job = await site.ended(job_id)
        assert job.state == JobState.JOB_STATE_FAILED
        assert "final parameters differ (2 versions)" in job.state_reason


async def test_a_model_of_other_parameters_than_the_workers_told_of_fails_the_job() -> None:
    async with Site().serving() as site:
        site.room.foreign_models = {"f" * 64}
        job_id = await site.submit()
        finish(await site.working())
        job = await site.ended(job_id)
        assert job.state == JobState.JOB_STATE_FAILED
        assert job.state_reason == "the model can't be kept: its parameters are not aaaaaaaaaaaa"
        assert not job.HasField("result")


async def test_a_worker_that_breaks_off_begins_the_next_generation() -> None:
    async with Site().serving() as site:
        await site.submit()
        worker = await site.working()
        aborted = WorkerAborted(generation=1, committed_step=2, reason="a collective failed")
        worker.say(WorkerSessionRequest(aborted=aborted))
        configure = (await worker.hear("configure")).configure
        assert (configure.generation, configure.first_step, configure.newcomers) == (2, 2, 0)


async def test_jobs_go_on_where_they_were_when_the_trainer_comes_back() -> None:
    site = Site()
    async with site.serving():
        job_id = await site.submit()
        worker = await site.working()
        await until(lambda: site.job(job_id).progress.step == 2)
        await worker.disconnect()
    assert site.job(job_id).state == JobState.JOB_STATE_RUNNING, "a stop of the trainer ends no job"
    again = await site.restarted()
    async with again.serving():
        back = ScriptedWorker(again.room.router, worker.worker_id, job_id, worker.secret)
        back.connect(step=3, generation=1)
        await back.hear("recorded")
        finish(back)
        job = await again.ended(job_id)
        assert (job.state, job.generation) == (JobState.JOB_STATE_SUCCEEDED, 1), "nobody was disturbed"


async def test_a_failed_job_is_resumed_once_and_a_running_one_isn_t() -> None:
    async with Site().serving() as site:
        job_id = await site.submit()
        worker = await site.working()
        worker.say(WorkerSessionRequest(checkpoint=CHECKPOINT))
        await until(lambda: site.job(job_id).HasField("checkpoint"))
        await site.room.jobs.cancel(job_id)
        assert [digest for digest, _ in site.room.files.holds] == [CHECKPOINT.artifact.digest]
        both = await asyncio.gather(
            site.room.jobs.resume(job_id), site.room.jobs.resume(job_id), return_exceptions=True
        )
        assert [type(one) for one in both] == [Job, FailedPreconditionError]
        second = await site.worker()
        configure = (await second.hear("configure")).configure
        assert configure.checkpoint_digest == CHECKPOINT.artifact.digest
        second.say(WorkerSessionRequest(ready=WorkerReady(generation=2)))
        finish(second, generation=2)
        await until(lambda: site.job(job_id).state == JobState.JOB_STATE_SUCCEEDED)
        assert site.room.files.holds == []


async def test_a_trainer_that_stops_while_a_job_s_end_is_decided_stops_and_decides_it_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stop came while the job's tasks were ended: it was forgotten, and the job waited for a writer."""
    site = Site(slots=0)
    stop: list[asyncio.Task[Any]] = []

    async def stop_when_ended(_: CheckpointKeeper) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stop.extend(task for task in asyncio.all_tasks() if "run_forever" in repr(task.get_coro()))
            stop[0].cancel()

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointKeeper, "keep_forever", stop_when_ended)
        async with asyncio.timeout(DEADLINE_S), site.serving():
            job_id = await site.submit()
            await until(lambda: stop)
            await asyncio.wait(stop)
    assert site.job(job_id).state not in ENDED_STATES
    again = await site.restarted()
    async with again.serving():
        assert (await again.ended(job_id)).state == JobState.JOB_STATE_NO_COMPUTE


async def test_traffic_is_recorded_for_ended_jobs_only() -> None:
    async with Site().serving() as site:
        job_id = await site.submit()
        await site.working()
        with pytest.raises(FailedPreconditionError):
            await site.room.jobs.record_traffic(job_id, NetworkTraffic(backend="ns3"))
        await site.room.jobs.cancel(job_id)
        traffic = NetworkTraffic(backend="ns3")
        await asyncio.gather(*(site.room.jobs.record_traffic(job_id, traffic) for _ in range(2)))
        assert site.job(job_id).traffic.backend == "ns3"
        assert site.job(job_id).state == JobState.JOB_STATE_CANCELLED


async def test_the_same_request_makes_one_job_and_an_unknown_task_none() -> None:
    async with Site(slots=0).serving() as site:
        one, other = [await site.room.jobs.submit(SPEC, "request-1") for _ in range(2)]
        assert one.job_id == other.job_id
        with pytest.raises(NotFoundError, match="digits"):
            await site.room.jobs.submit(JobSpec(task="digit"), "request-2")
        assert (await site.ended(one.job_id)).state == JobState.JOB_STATE_NO_COMPUTE


async def test_a_stored_job_is_run_though_its_caller_gave_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored, may_answer = asyncio.Event(), asyncio.Event()
    async with Site(slots=0).serving() as site:
        add = site.room.jobs._sql.run

        async def slowly(function: Any, *arguments: Any) -> Any:
            answer = await add(function, *arguments)
            if function.__name__ == "add_job":
                stored.set()
                await may_answer.wait()
            return answer

        monkeypatch.setattr(site.room.jobs._sql, "run", slowly)
        asking = asyncio.create_task(site.room.jobs.submit(SPEC, "request-1"))
        async with asyncio.timeout(DEADLINE_S):
            await stored.wait()
            asking.cancel()
            await asyncio.wait({asking})
            may_answer.set()
            again = await site.room.jobs.submit(SPEC, "request-1")
            await until(lambda: site.job(again.job_id).state == JobState.JOB_STATE_NO_COMPUTE)
