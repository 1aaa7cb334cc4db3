"""One job's life: recruit, form generations while workers come and go, collect the model.

All tasks of a job stand in one group. The group ends when the job's end is decided, or when one of its
tasks ends unexpectedly, which fails the job; only then are the slots freed and the end recorded, so that
nothing of the job goes on after it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.kit import tracing
from peerloom.kit.clock import Clock
from peerloom.kit.evidence import EvidenceReporter
from peerloom.kit.logs import get_logger
from peerloom.services.trainer.config import TrainerConfig
from peerloom.services.trainer.generations.driving import GenerationDriver, JobEndedError
from peerloom.services.trainer.generations.forming import Former
from peerloom.services.trainer.generations.planning import JobPlanner
from peerloom.services.trainer.generations.sync_tuning import SyncTuner
from peerloom.services.trainer.jobs.job_spans import job_traceparent
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.jobs.sample_ledger import why_trained
from peerloom.services.trainer.models.checkpoints import CheckpointKeeper
from peerloom.services.trainer.models.collecting import Collector
from peerloom.services.trainer.models.evaluation_rules import not_as_told
from peerloom.services.trainer.nodes.evidence_outbox import Witness
from peerloom.services.trainer.nodes.recruiting import Recruiter
from peerloom.services.trainer.nodes.replacing import JobNodes
from peerloom.services.trainer.workers.accusations import AuditKeeper
from peerloom.services.trainer.workers.failure_detector import BEAT_INTERVAL_S
from peerloom.services.trainer.workers.pool import WorkerPool
from peerloom.services.trainer.workers.rendezvous import Rendezvous
from peerloom.services.trainer.workers.session_router import SessionRouter
from peerloom.services.trainer.workers.sessions import WorkerSessions
from peerloom.v1.trainer_pb2 import EndWorker, EvaluationVerdict, JobState, WorkerSessionResponse

EVIDENCE_LIMIT_S = 2.0  # a selector that is away holds no job up; it gets the evidence when it is back
STARTED = (JobState.JOB_STATE_RUNNING, JobState.JOB_STATE_WAITING, JobState.JOB_STATE_FINISHING)
_log = get_logger()


@dataclass(frozen=True)
class JobDependencies:
    """What every job's runner works with."""

    config: TrainerConfig
    clock: Clock
    router: SessionRouter
    recruiter: Recruiter
    collector: Collector
    reporter: EvidenceReporter


class JobRunner:
    """Drives one job from wherever it is to its end; `secrets` are those of its workers, by their ids."""

    def __init__(self, record: JobRecord, dependencies: JobDependencies, secrets: Mapping[str, str]) -> None:
        config, clock = dependencies.config, dependencies.clock
        self.record = record
        self._dependencies = dependencies
        self._cancelled = asyncio.Event()
        self._witness = Witness(record.job_id, clock, record.evidence_given)
        router, collector = dependencies.router, dependencies.collector
        self._checkpoints = CheckpointKeeper(record, collector, clock)
        self._pool = WorkerPool(record, router, self._witness, clock)
        rendezvous = Rendezvous(self._pool.send)
        audits = AuditKeeper(record, self._pool, self._witness)
        self._tuner = tuner = SyncTuner(record, clock)
        planner = JobPlanner(record, self._checkpoints, clock, config.checkpoint_interval_s)
        self._sessions = WorkerSessions(
            record,
            self._pool,
            self._checkpoints,
            router,
            rendezvous,
            audits,
            tuner,
            planner,
            clock,
            config.checkpoint_interval_s,
        )
        former = Former(record, self._pool, collector, rendezvous, audits, tuner, config.collective_timeout_s)
        self._driver = GenerationDriver(
            record,
            self._pool,
            former,
            self._checkpoints,
            collector,
            self._witness,
            tuner,
            planner,
            config,
            clock,
        )
        self._nodes = JobNodes(record, self._pool, self._sessions, dependencies.recruiter, self._witness)
        nodes = {worker.worker_id: worker.node_id for worker in record.job.workers}
        router.listen(record.job_id, self._sessions, secrets, nodes)

    def cancel(self) -> None:
        """Ends the job as soon as possible."""
        self._cancelled.set()

    async def run(self) -> None:
        """Runs the job to its end; an unexpected failure of the trainer's ends it too, with a clear state."""
        with tracing.continuing(job_traceparent(self.record.job)):
            end = await self._until_ended()
            with tracing.span("end job"):
                await self._end(end)

    async def _until_ended(self) -> JobEndedError:
        try:
            async with asyncio.TaskGroup() as tasks:
                self._keep_up(tasks, self._end_when_cancelled)
                self._keep_up(tasks, self._tell_recorded)
                self._keep_up(tasks, self._checkpoints.keep_forever)
                raise await self._live(tasks)
        except BaseExceptionGroup as ended:
            # A group that ends already forgets (until Python 3.13) that its owner was cancelled meanwhile.
            if (task := asyncio.current_task()) and task.cancelling():
                raise asyncio.CancelledError from ended
            return self._end_of(ended)

    def _end_of(self, group: BaseExceptionGroup[BaseException]) -> JobEndedError:
        """What the exceptions of the job's tasks mean; a bug counts for more than an end."""
        decided, unexpected = group.split(JobEndedError)
        causes = _leaves(unexpected) or _leaves(decided)
        if isinstance(causes[0], JobEndedError):
            return causes[0]
        _log.error("job_crashed", job=self.record.job_id, exc_info=causes[0])
        reason = f"a bug of the trainer's: {type(causes[0]).__name__}: {causes[0]}"
        return JobEndedError(JobState.JOB_STATE_FAILED, reason)

    def _keep_up(self, tasks: asyncio.TaskGroup, task: Callable[[], Awaitable[None]]) -> None:
        """Runs a task for as long as the job lives: if it ends before, the job fails."""

        async def run() -> None:
            with tracing.muted():  # as long as the job: what it calls now and then would hide all else
                await task()
            raise RuntimeError(f"{task.__qualname__} ended before its job")

        tasks.create_task(run(), name=f"{self.record.job_id} {task.__qualname__}")

    async def _end_when_cancelled(self) -> NoReturn:
        await self._cancelled.wait()
        raise JobEndedError(JobState.JOB_STATE_CANCELLED, "its user cancelled it")

    async def _tell_recorded(self) -> None:
        writes = 0
        while True:
            writes = await self.record.log.wait_write(writes)
            self._pool.send_recorded()

    async def _ask_for_signs(self) -> None:
        while True:
            await asyncio.sleep(BEAT_INTERVAL_S)
            self._pool.ask_for_signs()

    async def _live(self, tasks: asyncio.TaskGroup) -> JobEndedError:
        job = self.record.job
        try:
            if job.ending_state:  # a restart of the trainer came between the decision and the end
                return JobEndedError(job.ending_state, job.ending_reason)
            if job.evaluation.verdict == EvaluationVerdict.EVALUATION_VERDICT_DIFFERS:  # so did one here
                return JobEndedError(JobState.JOB_STATE_FAILED, not_as_told(job.evaluation))
            if job.result.model.digest:  # a restart of the trainer came between the result and the end
                return JobEndedError(JobState.JOB_STATE_SUCCEEDED, why_trained(self.record.job))
            self._dependencies.collector.begin_holding(self.record)
            if job.state in STARTED:
                self._sessions.resume()
            else:
                await self._recruit()
            self._dependencies.collector.expect(self.record)
            self._keep_up(tasks, self._nodes.watch_forever)
            self._keep_up(tasks, self._nodes.reinforce_forever)
            self._keep_up(tasks, self._nodes.stop_forever)
            self._keep_up(tasks, self._ask_for_signs)
            self._keep_up(tasks, self._tuner.keep_forever)
            while not await self._driver.act():
                pass
        except JobEndedError as end:
            return end
        except (NotFoundError, InvalidArgumentError) as error:  # e.g. a policy that the selector lacks now
            return JobEndedError(JobState.JOB_STATE_FAILED, error.message)
        return JobEndedError(JobState.JOB_STATE_SUCCEEDED, why_trained(self.record.job))

    async def _recruit(self) -> None:
        # A trainer that died in the middle of a round leaves slots reserved: free them, ask again.
        await self._nodes.free_slots()
        with tracing.span("find nodes"):
            reason = await self._nodes.recruit()
        if reason:
            raise JobEndedError(JobState.JOB_STATE_NO_COMPUTE, reason)

    async def _end(self, end: JobEndedError) -> None:
        record, router = self.record, self._dependencies.router
        # What is known so far must be durable before the workers, who know it too, are gone.
        record.end_decided(end.state, end.reason)
        await record.log.wait_written()
        for worker in record.job.workers:
            router.send(worker.worker_id, WorkerSessionResponse(end=EndWorker(reason=end.reason)))
        # The end is told when the slots are free and the beliefs know: whoever waits for it may want both.
        try:
            reporter = self._dependencies.reporter
            await asyncio.gather(self._nodes.free_slots(), reporter.flush(EVIDENCE_LIMIT_S))
        except Exception as error:  # the job's end is recorded whatever becomes of its slots
            _log.error("slots_not_freed", job=record.job_id, exc_info=error)
        router.forget(record.job_id)
        if end.state == JobState.JOB_STATE_SUCCEEDED:  # any other may be resumed from its checkpoint
            self._dependencies.collector.end_holding(record)
        record.ended(end.state, end.reason)


def _leaves(group: BaseExceptionGroup[BaseException] | None) -> list[BaseException]:
    """The exceptions in a group and in the groups inside it."""
    if group is None:
        return []
    nested = [_leaves(e) if isinstance(e, BaseExceptionGroup) else [e] for e in group.exceptions]
    return [error for errors in nested for error in errors]
