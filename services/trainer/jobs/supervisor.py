"""The jobs that live here: takes new ones, resumes those of before a restart, cancels."""

import asyncio
from dataclasses import dataclass, field

from peerloom.errors import FailedPreconditionError, UnavailableError
from peerloom.kit import tracing
from peerloom.kit.clock import Clock, to_timestamp
from peerloom.kit.database import SqlThread
from peerloom.kit.ids import new_job_id
from peerloom.kit.limits import ENDED_STATES
from peerloom.kit.logs import get_logger
from peerloom.kit.settling import ask_until_known, is_in_doubt
from peerloom.kit.tasks import ShieldedWork
from peerloom.services.trainer.jobs.commit_queue import CommitQueue
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.jobs.runner import JobDependencies, JobRunner
from peerloom.services.trainer.jobs.specs import complete_spec, resumed_spec, why_not_resumable
from peerloom.services.trainer.jobs.submission import SubmissionChecks
from peerloom.services.trainer.jobs.sync_entries import in_use
from peerloom.services.trainer.store import TrainerStore
from peerloom.v1.trainer_pb2 import Job, JobSpec, JobState, NetworkTraffic

_log = get_logger()
ACTIVE = [state for state in JobState.values() if state and state not in ENDED_STATES]


def submitted(job_id: str, spec: JobSpec, wall_s: float, owner: str = "", traceparent: str = "") -> Job:
    """The record of a job that `owner` just handed in, by a call with this `traceparent`."""
    return Job(
        job_id=job_id,
        spec=spec,
        state=JobState.JOB_STATE_QUEUED,
        state_reason="submitted",
        submit_time=to_timestamp(wall_s),
        owner=owner,
        traceparent=traceparent,
    )


@dataclass
class _Running:
    runner: JobRunner
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class JobSupervisor:
    """Owns the tasks of all jobs that have not ended; `run_forever` must run for them to make progress."""

    def __init__(
        self,
        store: TrainerStore,
        sql: SqlThread,
        queue: CommitQueue,
        checks: SubmissionChecks,
        dependencies: JobDependencies,
        clock: Clock,
    ) -> None:
        self._store = store
        self._sql = sql
        self._queue = queue
        self._checks = checks
        self._dependencies = dependencies
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._reopening = asyncio.Lock()  # an ended job's record is opened by one caller at a time
        self._begun: asyncio.Queue[_Running] = asyncio.Queue()
        self._shielded = ShieldedWork()

    async def submit(self, spec: JobSpec, request_id: str, owner: str = "") -> Job:
        """Stores and starts a job for `owner`. Raises InvalidArgumentError or NotFoundError."""
        full = complete_spec(spec)
        await self._checks.check(full)
        job = submitted(new_job_id(), full, self._clock.wall_s(), owner, tracing.traceparent())
        tracing.note(job=job.job_id)
        # A caller that gives up must not leave a job that is stored and that nobody runs.
        return await self._shielded.finish(self._add(job, request_id))

    async def _add(self, job: Job, request_id: str) -> Job:
        try:
            stored = await self._sql.run(self._store.add_job, job, request_id)
        except UnavailableError as error:
            if not is_in_doubt(error):
                raise
            stored = await ask_until_known(self._sql.run, self._store.settled_job, job, request_id)
        if stored.job_id == job.job_id:  # and not the one that this request made before
            self._begin(self._queue.open(stored, 0), {})
        return stored

    async def resume_all(self) -> None:
        """Goes on with every job that had not ended when the trainer last stopped."""
        before: int | None = None
        has_more = True
        while has_more:
            page, has_more = await self._sql.run(self._store.list_jobs, ACTIVE, 1000, before)
            before = page[-1][0] if page else None
            for _, job in page:
                _, last_sequence = await self._sql.run(self._store.find_job, job.job_id)
                _log.info("job_resumed", job=job.job_id, state=JobState.Name(job.state))
                secrets = await self._sql.run(self._store.worker_secrets, job.job_id)
                self._begin(self._queue.open(job, last_sequence), secrets)

    async def resume(self, job_id: str, plan: str = "") -> Job:
        """Goes on with an ended job from its checkpoint, perhaps under another plan.

        Raises FailedPreconditionError if it can't go on, InvalidArgumentError if not under this plan.
        """
        async with self._reopening:
            job, last_sequence = await self._find_ended(job_id)
            reason = why_not_resumable(job)
            if reason:
                why = f"{job.job_id} can't be resumed: {reason}."
                raise FailedPreconditionError(why, reason="NOT_RESUMABLE")
            spec = resumed_spec(job.spec, plan, in_use(job)) if plan else None
            record = self._queue.open(job, last_sequence)
            record.resumed(tracing.traceparent(), spec)
            self._begin(record, {})
            await record.log.wait_written()  # who asks for the job from now on sees that it goes on
        return record.job

    async def cancel(self, job_id: str) -> None:
        """Ends a job and waits until it has ended; a job that has ended stays as it is."""
        running = self._running.get(job_id)
        if running is not None:
            running.runner.cancel()
            await running.ended.wait()

    async def record_traffic(self, job_id: str, traffic: NetworkTraffic) -> None:
        """Keeps what an ended job's network carried. Raises FailedPreconditionError while it runs."""
        async with self._reopening:
            job, last_sequence = await self._find_ended(job_id)
            if job.state not in ENDED_STATES:
                raise FailedPreconditionError(
                    f"{job_id} has not ended. Wait for it, or end it: peerloom jobs cancel {job_id}",
                    reason="JOB_RUNS",
                )
            record = self._queue.open(job, last_sequence)
            record.traffic_recorded(traffic)
            await self._queue.close(record)

    async def run_forever(self) -> None:
        """Runs the jobs that begin, until cancelled: they stay as they are and go on after a restart."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                running = await self._begun.get()
                tasks.create_task(self._run(running), name=running.runner.record.job_id)

    def _begin(self, record: JobRecord, secrets: dict[str, str]) -> None:
        running = _Running(JobRunner(record, self._dependencies, secrets))
        self._running[record.job_id] = running
        self._begun.put_nowait(running)

    async def _run(self, running: _Running) -> None:
        await running.runner.run()
        await self._queue.close(running.runner.record)
        del self._running[running.runner.record.job_id]
        running.ended.set()

    async def _find_ended(self, job_id: str) -> tuple[Job, int]:
        """The job as stored; if it has reached a final state, all of its last writes are in there."""
        job, last_sequence = await self._sql.run(self._store.find_job, job_id)
        running = self._running.get(job_id)
        if running is not None and job.state in ENDED_STATES:
            await running.ended.wait()
            job, last_sequence = await self._sql.run(self._store.find_job, job_id)
        return job, last_sequence
