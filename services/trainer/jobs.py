"""The jobs that live here: takes new ones, resumes those of before a restart, cancels."""

import asyncio

from peerloom.errors import FailedPreconditionError, NotFoundError
from peerloom.kit.artifact_store import ArtifactStore
from peerloom.kit.clock import Clock, to_timestamp
from peerloom.kit.database import SqlThread
from peerloom.kit.directory import Directory
from peerloom.kit.ids import new_job_id
from peerloom.kit.job_inputs import inputs_of
from peerloom.kit.logs import get_logger
from peerloom.services.trainer.distributing import Distributor
from peerloom.services.trainer.journal import Journals
from peerloom.services.trainer.rules import ENDED, complete_spec, why_not_resumable
from peerloom.services.trainer.runner import JobRunner, Surroundings
from peerloom.services.trainer.store import Change, TrainerStore
from peerloom.v1.registry_pb2 import ServiceKind
from peerloom.v1.selector_pb2 import ListPoliciesRequest
from peerloom.v1.selector_pb2_grpc import SelectorServiceStub
from peerloom.v1.trainer_pb2 import Job, JobSpec, JobState, NetworkTraffic

_log = get_logger()
ACTIVE = [state for state in JobState.values() if state and state not in ENDED]


class Jobs:
    """All jobs that have not ended, each with its runner's task."""

    def __init__(
        self,
        store: TrainerStore,
        sql: SqlThread,
        journals: Journals,
        directory: Directory,
        artifacts: ArtifactStore,
        distributor: Distributor,
        around: Surroundings,
        clock: Clock,
    ) -> None:
        self._store = store
        self._sql = sql
        self._journals = journals
        self._directory = directory
        self._artifacts = artifacts
        self._distributor = distributor
        self._around = around
        self._clock = clock
        self._running: dict[str, tuple[JobRunner, asyncio.Task[None]]] = {}

    async def submit(self, spec: JobSpec, request_id: str) -> Job:
        """Stores and starts a job. Raises InvalidArgumentError or NotFoundError for a bad spec."""
        full = complete_spec(spec)
        if full.policy:
            await self._check_policy(full.policy)
        for digest in inputs_of(full):
            await self._distributor.know(digest)
        job = Job(job_id=new_job_id(), spec=full, state=JobState.JOB_STATE_QUEUED)
        job.state_reason = "submitted"
        job.submit_time.CopyFrom(to_timestamp(self._clock.wall_s()))
        stored, is_new = await self._sql.run(self._store.add_job, job, request_id)
        if is_new:
            self._start(stored, 0)
        return stored

    async def resume_all(self) -> None:
        """Goes on with every job that had not ended when the trainer last stopped."""
        before: int | None = None
        while page := await self._sql.run(self._store.list_jobs, ACTIVE, 1000, before):
            before = page[-1][0]
            for _, job in page:
                _, last_sequence = await self._sql.run(self._store.find_job, job.job_id)
                _log.info("job_resumed", job=job.job_id, state=JobState.Name(job.state))
                self._start(job, last_sequence)

    async def resume(self, job_id: str) -> Job:
        """Goes on with an ended job from its checkpoint. Raises FailedPreconditionError if it can't."""
        job, last_sequence = await self._sql.run(self._store.find_job, job_id)
        reason = why_not_resumable(job)
        if reason:
            raise FailedPreconditionError(f"{job.job_id} can't be resumed: {reason}.", reason="NOT_RESUMABLE")
        job.state, job.state_reason = JobState.JOB_STATE_QUEUED, "resumed from its checkpoint"
        job.ClearField("end_time")
        self._start(job, last_sequence)
        journal = self._journals.get(job.job_id)
        assert journal is not None, "a started job has its journal"
        journal.note()
        return job

    async def cancel(self, job_id: str) -> None:
        """Ends a job and waits until it has ended; a job that has ended stays as it is."""
        running = self._running.get(job_id)
        if running is not None:
            runner, task = running
            runner.cancel()
            await asyncio.wait({task})

    async def record_traffic(self, job_id: str, traffic: NetworkTraffic) -> None:
        """Keeps what an ended job's network carried. Raises FailedPreconditionError while it runs."""
        running = self._running.get(job_id)
        job, _ = await self._sql.run(self._store.find_job, job_id)
        if running is not None and job.state in ENDED:
            await asyncio.wait({running[1]})  # its journal writes the record, too
        elif job.state not in ENDED:
            raise FailedPreconditionError(f"{job_id} has not ended.", reason="JOB_RUNS")
        job, _ = await self._sql.run(self._store.find_job, job_id)
        job.traffic.CopyFrom(traffic)
        await self._sql.run(self._store.write, [Change(job)])

    async def stop(self) -> None:
        """Leaves all jobs as they are; they go on when the trainer comes back."""
        for _, task in self._running.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self._running.values()), return_exceptions=True)

    def _start(self, job: Job, last_sequence: int) -> None:
        runner = JobRunner(self._journals.open(job, last_sequence), self._around)
        self._running[job.job_id] = (runner, asyncio.create_task(self._run(runner)))

    async def _run(self, runner: JobRunner) -> None:
        job_id = runner.job.job_id
        await runner.run()
        await self._journals.close(job_id)
        self._around.reporter.wake()
        del self._running[job_id]

    def recorded(self, job_id: str) -> None:
        """Something of this job was written: its workers may forget it."""
        if job_id in self._running:
            self._running[job_id][0].send_recorded()
        self._around.reporter.wake()

    async def _check_policy(self, policy: str) -> None:
        selector = await self._directory.find(ServiceKind.SERVICE_KIND_SELECTOR, SelectorServiceStub)
        answer = await selector.call("ListPolicies", ListPoliciesRequest(), 5.0)
        names = [known.name for known in answer.policies]
        if policy not in names and ":" not in policy:
            raise NotFoundError.of_name("policy", policy, names)
