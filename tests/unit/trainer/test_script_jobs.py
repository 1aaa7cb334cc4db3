"""A script's job from its first start to its end, in a trainer that serves scripted workers on one node."""

from scripted_worker import ScriptedWorker
from trainer_room import until
from trainer_site import Site

from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.common_pb2 import Script
from peerloom.v1.trainer_pb2 import (
    Checkpoint,
    ConfigureGeneration,
    JobSpec,
    JobState,
    ScriptExit,
    WorkerAborted,
    WorkerFinished,
    WorkerPrepared,
    WorkerReady,
    WorkerSessionRequest,
)

FILES = Checkpoint(artifact=Artifact(digest="f" * 64))


async def submitted(site: Site, max_restarts: int = 3) -> str:
    """Hands in a script."""
    script = Script(arguments=["--epochs", "2"], max_restarts=max_restarts)
    spec = JobSpec(task="train.py", code_digest="c" * 64, script=script)
    return (await site.room.jobs.submit(spec, f"script-{len(site.workers)}")).job_id


async def prepared(site: Site, count: int) -> list[ScriptedWorker]:
    """That many workers that have laid out the script, the newest ones."""
    await until(lambda: len(site.workers) >= count)
    workers = site.workers[-count:]
    for worker in workers:
        spec = (await worker.hear("prepare")).prepare.spec
        assert (spec.task, list(spec.script.arguments)) == ("train.py", ["--epochs", "2"])
        worker.say(WorkerSessionRequest(prepared=WorkerPrepared()))
    return workers


async def started(worker: ScriptedWorker) -> ConfigureGeneration:
    """The generation in which it has started the script."""
    configure = (await worker.hear("configure")).configure
    worker.say(WorkerSessionRequest(ready=WorkerReady(generation=configure.generation)))
    return configure


def fail(worker: ScriptedWorker, generation: int, rank: int, files: Checkpoint | None = None) -> None:
    """Its process ends with status 3."""
    failed = ScriptExit(rank=rank, status=3, last_lines="ValueError: no")
    aborted = WorkerAborted(generation=generation, script_exit=failed, script_files=files)
    worker.say(WorkerSessionRequest(aborted=aborted))


def finish(worker: ScriptedWorker, generation: int) -> None:
    """Its process ends with status 0."""
    worker.say(WorkerSessionRequest(finished=WorkerFinished(generation=generation)))


async def test_after_a_failure_all_start_again_with_what_rank_0_left() -> None:
    async with Site(slots=2).serving() as site:
        job_id = await submitted(site)
        first, second = await prepared(site, 2)
        for worker in (first, second):
            assert (await started(worker)).checkpoint_digest == ""
        fail(second, 1, rank=1)
        assert (await first.hear("abort")).abort.at_step == 0, "a script has no step to leave at"
        aborted = WorkerAborted(generation=1, reason="it was ended", script_files=FILES)
        first.say(WorkerSessionRequest(aborted=aborted))
        for rank, worker in enumerate((first, second)):
            configure = await started(worker)
            assert (configure.generation, configure.rank, configure.world_size) == (2, rank, 2)
            assert configure.checkpoint_digest == FILES.artifact.digest
            finish(worker, 2)
        job = await site.ended(job_id)
    assert job.state == JobState.JOB_STATE_SUCCEEDED
    assert job.state_reason == "the script ended with status 0 on 2 workers"
    assert (job.script_run.failures, job.script_run.exit.status, job.script_run.exit.rank) == (1, 3, 1)
    assert job.script_run.exit.node_name == "ada"
    assert job.checkpoint.artifact.digest == FILES.artifact.digest
    assert not job.HasField("result")


async def test_a_script_that_fails_too_often_fails_its_job() -> None:
    async with Site().serving() as site:
        job_id = await submitted(site, max_restarts=1)
        [worker] = await prepared(site, 1)
        for generation in (1, 2):
            await started(worker)
            fail(worker, generation, rank=0)
        job = await site.ended(job_id)
    assert job.state == JobState.JOB_STATE_FAILED
    why = "the script failed after 1 of 1 restarts: rank 0 on ada ended with status 3: ValueError: no"
    assert job.state_reason == why


async def test_when_all_are_lost_others_go_on_from_its_files_and_it_costs_no_restart() -> None:
    async with Site().serving() as site:
        job_id = await submitted(site, max_restarts=0)
        [worker] = await prepared(site, 1)
        await started(worker)
        worker.say(WorkerSessionRequest(checkpoint=FILES))
        await until(lambda: site.job(job_id).HasField("checkpoint"))
        site.agent.end(worker.worker_id, -9)
        await until(lambda: len(site.workers) == 2)
        [other] = await prepared(site, 1)
        configure = await started(other)
        assert (configure.generation, configure.checkpoint_digest) == (2, FILES.artifact.digest)
        finish(other, 2)
        job = await site.ended(job_id)
    assert job.state == JobState.JOB_STATE_SUCCEEDED
    assert job.script_run.failures == 0


async def test_a_trainer_that_is_started_again_hears_how_the_script_ended() -> None:
    site = Site()
    async with site.serving():
        job_id = await submitted(site)
        [worker] = await prepared(site, 1)
        await started(worker)
        await until(lambda: site.job(job_id).state == JobState.JOB_STATE_RUNNING)
        await worker.disconnect()
    again = await site.restarted()
    async with again.serving():
        back = ScriptedWorker(again.room.router, worker.worker_id, job_id, worker.secret)
        back.connect(generation=1)
        said = WorkerFinished(generation=1, script_files=FILES)
        back.say(WorkerSessionRequest(finished=said))
        job = await again.ended(job_id)
        assert job.state == JobState.JOB_STATE_SUCCEEDED
        assert job.checkpoint.artifact.digest == FILES.artifact.digest
