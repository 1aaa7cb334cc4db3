"""Workers come, leave, fall silent and fail while a job goes on; both sides are scripted."""

from scripted_worker import ScriptedWorker
from trainer_room import settle, until
from trainer_site import CHECKPOINT, Site, finish, reported, step

from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.trainer_pb2 import (
    Checkpoint,
    Job,
    JobState,
    WorkerAborted,
    WorkerBeat,
    WorkerFailed,
    WorkerLeaving,
    WorkerMet,
    WorkerReady,
    WorkerSessionRequest,
)


def aborted(worker: ScriptedWorker, generation: int, committed_step: int) -> None:
    """It has left a generation."""
    left = WorkerAborted(generation=generation, committed_step=committed_step, reason="told to")
    worker.say(WorkerSessionRequest(aborted=left))


def leaves(worker: ScriptedWorker, grace_s: float) -> None:
    """Its node wants its slot back."""
    leaving = WorkerLeaving(reason="its owner is back", grace_s=grace_s)
    worker.say(WorkerSessionRequest(leaving=leaving))


async def two_at_work(site: Site) -> list[ScriptedWorker]:
    """Both workers, ready in the first generation, with two steps done."""
    both = [await site.worker(), await site.worker()]
    for worker in both:
        await worker.hear("configure")
        worker.say(WorkerSessionRequest(ready=WorkerReady(generation=1)))
    for number in (1, 2):
        both[0].say(reported(step(number)))
    for worker in both:
        worker.say(WorkerSessionRequest(beat=WorkerBeat(committed_step=2)))
    return both


def reasons(job: Job) -> dict[str, str]:
    return {worker.worker_id: worker.end_reason for worker in job.workers}


async def test_generations_that_make_no_step_are_formed_ever_more_slowly() -> None:
    async with Site().serving() as site:
        job_id = await site.submit()
        worker = await site.worker()
        for generation in range(1, 7):
            assert (await worker.hear("configure")).configure.generation == generation
            aborted(worker, generation, committed_step=0)
        await settle()
        assert site.job(job_id).generation == 6
        site.room.clock.advance(0.1)
        assert (await worker.hear("configure")).configure.generation == 7


async def test_votes_go_to_the_owners_in_certificates() -> None:
    async with Site(slots=2, owner="grace").serving() as site:
        await site.submit()
        for worker in [await site.worker(), await site.worker()]:
            assert list((await worker.hear("configure")).configure.owners) == ["grace"] * 2


async def test_nodes_of_whoever_runs_the_registry_vote_each_for_itself() -> None:
    async with Site(owner="registry").serving() as site:
        await site.submit()
        worker = await site.worker()
        assert list((await worker.hear("configure")).configure.owners) == ["node-ada"]


async def test_a_replacement_meets_beside_the_training_and_the_departing_worker_is_let_go() -> None:
    """Nobody stops: the next generation is entered two steps ahead of the last that was committed."""
    async with Site().serving() as site:
        job_id = await site.submit()
        first = await site.working()
        leaves(first, grace_s=60.0)
        second = await site.worker()
        beside = (await second.hear("configure")).configure
        # Two workers of one node have one vote; without certificates each node is its own owner.
        assert list(beside.owners) == ["node-ada"] * 2  # for both, what a worker says of itself doesn't count
        assert (beside.generation, beside.world_size, beside.beside) == (2, 2, True)
        assert (await first.hear("configure")).configure.generation == 2
        for worker in (first, second):
            worker.say(WorkerSessionRequest(met=WorkerMet(generation=2)))
        entered = (await first.hear("abort")).abort
        assert (entered.generation, entered.at_step) == (1, 4)
        await until(lambda: "generation_formed" in site.room.kinds_written(job_id)[-3:])
        for worker in (first, second):
            worker.say(WorkerSessionRequest(ready=WorkerReady(generation=2)))
        second.say(WorkerSessionRequest(beat=WorkerBeat(committed_step=4)))
        site.room.clock.advance(0.1)
        job = site.job(job_id)
        assert (job.state, job.generation) == (JobState.JOB_STATE_RUNNING, 2)
        assert job.state_reason == "2 workers have met and go on from step 4"


async def test_the_last_worker_stores_its_state_before_it_is_let_go() -> None:
    site = Site()
    async with site.serving():
        job_id = await site.submit()
        worker = await site.working()
        worker.say(WorkerSessionRequest(beat=WorkerBeat(committed_step=2)))
        await until(lambda: site.job(job_id).progress.step == 2)
        site.agent.slots = 0
        leaves(worker, grace_s=0.0)
        assert (await worker.hear("abort")).abort.at_step == 4
        aborted(worker, 1, 4)
        await worker.hear("save")
        for number in (3, 4):
            worker.say(reported(step(number)))
        kept = Checkpoint(step=4, artifact=Artifact(digest="d" * 64))
        worker.say(WorkerSessionRequest(checkpoint=kept))
        await worker.hear("end")
        await until(lambda: site.job(job_id).state == JobState.JOB_STATE_WAITING)
        assert reasons(site.job(job_id)) == {worker.worker_id: "its owner is back"}
        assert site.job(job_id).checkpoint.step == 4
        assert list(site.room.neighbours.evidence) == []


async def test_who_has_to_go_does_not_wait_for_the_end_of_a_long_round() -> None:
    """A step took 5 s: the workers leave where the last one ended, within the round that is under way."""
    async with Site().serving() as site:
        job_id = await site.submit()
        worker = await site.working()
        long_one = step(3)
        long_one.step_s = 5.0
        worker.say(reported(long_one))
        worker.say(WorkerSessionRequest(beat=WorkerBeat(committed_step=3)))
        await until(lambda: site.job(job_id).progress.step == 3)
        site.agent.slots = 0
        leaves(worker, grace_s=0.0)
        assert (await worker.hear("abort")).abort.at_step == 3


async def test_the_time_limit_of_a_collective_is_for_a_batch_and_a_round_has_more() -> None:
    async with Site().serving() as site:
        await site.submit(sync="period=8")
        rounds = (await (await site.worker()).hear("configure")).configure.collective_timeout_s
    async with Site().serving() as site:
        await site.submit()
        steps = (await (await site.worker()).hear("configure")).configure.collective_timeout_s
    assert rounds == 8 * steps


async def test_a_silent_worker_is_left_behind_and_a_lost_one_breaks_the_generation() -> None:
    async with Site(slots=2).serving() as site:
        job_id = await site.submit()
        silent, other = await two_at_work(site)
        await until(lambda: site.job(job_id).progress.step == 2)
        for _ in range(8):  # in steps: a leap of the clock would be a pause of the trainer's own
            site.room.clock.advance(0.4)
            other.say(WorkerSessionRequest(beat=WorkerBeat(committed_step=2)))
            other.say(WorkerSessionRequest(met=WorkerMet(generation=1)))  # means nothing now; all look again
            await settle()
        assert (await silent.hear("abort")).abort.reason == "it shows no sign of life"
        assert (await other.hear("abort")).abort.reason == f"{silent.worker_id} fell silent"
        aborted(other, 1, 2)
        configure = (await other.hear("configure")).configure
        assert (configure.generation, configure.world_size, configure.first_step) == (2, 1, 2)
        assert not reasons(site.job(job_id))[silent.worker_id], "it may come back"


async def test_a_failure_of_the_task_itself_ends_the_job() -> None:
    async with Site().serving() as site:
        job_id = await site.submit()
        worker = await site.worker()
        failed = WorkerFailed(reason="there is no file /data", is_permanent=True)
        worker.say(WorkerSessionRequest(failed=failed))
        job = await site.ended(job_id)
        assert job.state == JobState.JOB_STATE_FAILED
        assert job.state_reason == f"{worker.worker_id} on ada: there is no file /data"


async def test_with_its_only_state_lost_a_job_begins_anew_three_times_and_then_says_of_whom() -> None:
    async with Site().serving() as site:
        job_id = await site.submit()
        for lost_before in range(4):
            worker = await site.working()
            await until(lambda: site.job(job_id).progress.step == 2)
            assert site.job(job_id).begun_anew == lost_before
            site.agent.end(worker.worker_id, -9)
        job = await site.ended(job_id)
        assert job.state == JobState.JOB_STATE_FAILED
        assert job.state_reason == (
            "nobody is left who has the state, and there is no checkpoint: it began anew 3 times already: "
            f"{worker.worker_id} on ada: its process was killed by signal 9"
        )
        assert job.ledger.discarded_samples == 3 * 20


async def test_a_checkpoint_that_nobody_has_sound_is_fallen_back_from() -> None:
    """The newest is damaged here and its node is away, so the one before it is taken."""
    async with Site().serving() as site:
        job_id = await site.submit()
        worker = await site.working()
        newer = Checkpoint(step=2, artifact=Artifact(digest="e" * 64))
        for checkpoint in (CHECKPOINT, newer):
            worker.say(WorkerSessionRequest(checkpoint=checkpoint))
            digest = checkpoint.artifact.digest
            await until(lambda digest=digest: site.job(job_id).checkpoint.artifact.digest == digest)
        site.room.files.damaged = {newer.artifact.digest}
        take = site.room.transfers.take

        async def fail_for_the_newer(digest, *rest):  # type: ignore[no-untyped-def]  # as `take`
            if digest == newer.artifact.digest:
                raise TimeoutError
            return await take(digest, *rest)

        site.room.transfers.take = fail_for_the_newer  # type: ignore[method-assign]
        site.agent.end(worker.worker_id, -9)
        second = await site.worker()
        configure = (await second.hear("configure")).configure
        assert configure.checkpoint_digest == CHECKPOINT.artifact.digest
        assert not site.job(job_id).HasField("previous_checkpoint")


async def test_a_model_that_can_t_be_fetched_is_no_success() -> None:
    async with Site().serving() as site:
        job_id = await site.submit()
        worker = await site.working()
        site.room.transfers.refusing = {"ada"}
        finish(worker)
        job = await site.ended(job_id)
        assert job.state == JobState.JOB_STATE_FAILED
        assert job.state_reason == "the model can't be kept: ada is away"


async def test_a_trainer_that_died_while_it_ended_a_job_ends_it_as_decided() -> None:
    site = Site()
    record = site.room.new_record("job-9")
    record.end_decided(JobState.JOB_STATE_CANCELLED, "its user cancelled it")
    await site.room.queue.close(record)
    await site.room.jobs.resume_all()
    async with site.serving():
        job = await site.ended("job-9")
        assert (job.state, job.state_reason) == (JobState.JOB_STATE_CANCELLED, "its user cancelled it")
        assert not job.ending_state


async def test_a_worker_of_a_job_that_is_over_is_told_so() -> None:
    async with Site().serving() as site:
        late = ScriptedWorker(site.room.router, "worker-9", "job-of-yesterday")
        late.connect()
        assert (await late.hear("end")).end.reason == "the job job-of-yesterday is over"


async def test_a_worker_that_its_job_does_not_know_is_told_when_the_job_is_over() -> None:
    """The trainer that had it started died before it wrote that down."""
    async with Site().serving() as site:
        job_id = await site.submit()
        worker = await site.working()
        site.room.router.admit(job_id, {"worker-9": "9" * 64}, "node-9")
        unknown = ScriptedWorker(site.room.router, "worker-9", job_id, "9" * 64)
        unknown.connect()
        finish(worker)
        await site.ended(job_id)
        assert (await unknown.hear("end")).end.reason == f"the job {job_id} is over"
