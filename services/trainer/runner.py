"""One job's life as one task: recruit, form generations while workers come and go, collect the model."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from peerloom.errors import DataLossError, NotFoundError, PeerloomError
from peerloom.kit.clock import Clock, to_timestamp
from peerloom.kit.logs import get_logger
from peerloom.services.trainer import generations as g
from peerloom.services.trainer.collecting import Collector
from peerloom.services.trainer.config import TrainerConfig
from peerloom.services.trainer.crew import Crew
from peerloom.services.trainer.evidence import EvidenceReporter, Witness
from peerloom.services.trainer.forming import Former
from peerloom.services.trainer.hub import Hub
from peerloom.services.trainer.journal import JobJournal
from peerloom.services.trainer.mate import (
    finish_of,
    nodes_that_finished,
    parameter_digests,
    slots_of_node,
    speed_of_node,
)
from peerloom.services.trainer.members import Limits, Phase
from peerloom.services.trainer.recruiting import Recruiter
from peerloom.services.trainer.rendezvous import Rendezvous
from peerloom.services.trainer.rules import slots_wanted
from peerloom.services.trainer.silence import BEAT_INTERVAL_S
from peerloom.services.trainer.staffing import Staff
from peerloom.v1.trainer_pb2 import (
    Backend,
    Checkpoint,
    EndWorker,
    Job,
    JobState,
    StateChange,
    WatchJobResponse,
    WorkerSessionResponse,
)

EVIDENCE_LIMIT_S = 2.0  # a selector that is away holds no job up; it gets the evidence when it is back
STARTED = (JobState.JOB_STATE_RUNNING, JobState.JOB_STATE_WAITING, JobState.JOB_STATE_FINISHING)


@dataclass(frozen=True)
class Surroundings:
    """What every job's runner works with."""

    config: TrainerConfig
    clock: Clock
    hub: Hub
    recruiter: Recruiter
    rendezvous: Rendezvous
    collector: Collector
    reporter: EvidenceReporter
    address: Callable[[], str]


@dataclass
class JobEndedError(Exception):
    """The job has reached its end; carries the final state and why."""

    state: "JobState.ValueType"
    reason: str
    details: dict[str, str] = field(default_factory=dict)


class JobRunner:
    """Drives one job from wherever it is to its end."""

    def __init__(self, journal: JobJournal, around: Surroundings) -> None:
        self.journal = journal
        self._around = around
        self._log = get_logger(job=journal.job.job_id)
        self._cancelled = asyncio.Event()
        self._witness = Witness(
            journal.job.job_id, around.clock, lambda evidence: journal.note(evidence=[evidence])
        )
        self._crew = Crew(journal, around.hub, self._witness, around.clock)
        self._crew.checkpoint_interval_s = around.config.checkpoint_interval_s
        self._crew.on_checkpoint = self._keep_checkpoint
        self._crew.on_refused = self._fall_back
        self._former = Former(journal, self._crew, around.hub, around.rendezvous, around.collector)
        self._former.collective_timeout_s = around.config.collective_timeout_s
        self._staff = Staff(journal, self._crew, around.recruiter, self._witness, around.address)
        self._keeping: asyncio.Task[None] | None = None
        around.hub.listen(journal.job.job_id, self._crew)

    @property
    def job(self) -> Job:
        """The record; written through the journal."""
        return self.journal.job

    def send_recorded(self) -> None:
        """Tells the workers what is stored."""
        self._crew.send_recorded()

    def cancel(self) -> None:
        """Ends the job as soon as possible."""
        self._cancelled.set()

    async def run(self) -> None:
        """Runs the job to its end; an unexpected failure of ours ends it too, with a clear state."""
        try:
            end = await self._until_cancelled(self._live())
        except Exception as error:
            self._log.error("job_crashed", exc_info=error)
            reason = f"a bug of the trainer's: {type(error).__name__}: {error}"
            end = JobEndedError(JobState.JOB_STATE_FAILED, reason)
        await self._end(end)

    async def _until_cancelled(self, living: Awaitable[JobEndedError]) -> JobEndedError:
        life = asyncio.ensure_future(living)
        cancelled = asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait({life, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            if life.done():
                return life.result()
            return JobEndedError(JobState.JOB_STATE_CANCELLED, "its user cancelled it")
        finally:
            for task in (life, cancelled):
                task.cancel()
            await asyncio.gather(life, cancelled, return_exceptions=True)

    async def _live(self) -> JobEndedError:
        try:
            if self.job.ending_state:  # a restart of ours came between the decision and the end
                return JobEndedError(self.job.ending_state, self.job.ending_reason)
            if self.job.result.model.digest:  # a restart of ours came between the result and the end
                return JobEndedError(JobState.JOB_STATE_SUCCEEDED, "the model is trained")
            if self.job.state in STARTED:
                self._crew.resume()
            else:
                await self._recruit()
            await self._watch_and_train()
        except JobEndedError as end:
            return end
        except NotFoundError as error:  # e.g. a policy that the selector no longer knows
            return JobEndedError(JobState.JOB_STATE_FAILED, error.message)
        return JobEndedError(JobState.JOB_STATE_SUCCEEDED, "the model is trained")

    async def _recruit(self) -> None:
        # A trainer that died in the middle of a round leaves slots reserved: free them, ask again.
        await self._stop_everywhere()
        reason = await self._staff.recruit(self.set_state)
        if reason:
            raise JobEndedError(JobState.JOB_STATE_NO_COMPUTE, reason)

    async def _watch_and_train(self) -> None:
        self._staff.begin()
        asking = asyncio.create_task(self._ask_for_signs())
        try:
            while not await self._act():
                pass
        finally:
            asking.cancel()
            await self._staff.end()

    async def _ask_for_signs(self) -> None:
        while True:
            await asyncio.sleep(BEAT_INTERVAL_S)
            self._crew.ask_for_signs()

    async def _act(self) -> bool:
        """Carries out the next decision; True when the job is complete."""
        crew, former = self._crew, self._former
        if crew.permanent_failure:
            raise JobEndedError(JobState.JOB_STATE_FAILED, crew.permanent_failure)
        now_s = self._around.clock.monotonic_s()
        checkpoint = self.job.checkpoint.step if self.job.HasField("checkpoint") else None
        committed, limits = self.job.progress.step, self._limits()
        match g.decide(crew.members(), self.job.generation, limits, now_s, checkpoint, committed):
            case g.Wait(until_s=until_s):
                await crew.wait_for_change(None if until_s is None else until_s - now_s)
            case g.Hold(reason, until_s):
                if (self.job.state, self.job.state_reason) != (JobState.JOB_STATE_WAITING, reason):
                    self.set_state(JobState.JOB_STATE_WAITING, reason)
                await crew.wait_for_change(None if until_s is None else until_s - now_s)
            case g.Silence(worker_ids, reason):
                self._log.warning("workers_fell_silent", workers=worker_ids)
                crew.leave(worker_ids, former.abort(reason, is_polite=False), Phase.SILENT)
            case g.GiveUpOn(worker_ids, reason):
                for worker_id in worker_ids:
                    crew.lose(worker_id, reason)
            case g.Abort(worker_ids, reason, is_polite):
                crew.leave(worker_ids, former.abort(reason, is_polite))
            case g.Dismiss(worker_ids, reason):
                crew.dismiss(worker_ids, reason)
            case g.Save(worker_id, reason):
                crew.ask_to_save(worker_id, reason)
            case g.Form() as form:
                await self._form(form)
            case g.Enter(reason):
                step = former.enter(reason)
                self.set_state(JobState.JOB_STATE_RUNNING, f"{reason} and go on from step {step}")
            case g.Fail(reason):
                raise JobEndedError(JobState.JOB_STATE_FAILED, f"{reason}: {crew.last_loss}")
            case g.Complete(worker_id):
                await self._complete(worker_id)
                return True
        return False

    async def _form(self, form: g.Form) -> None:
        try:
            if await self._former.form(form) and not form.beside:
                self.set_state(JobState.JOB_STATE_RUNNING, form.reason)
        except DataLossError as error:
            self._fall_back(self.job.checkpoint.artifact.digest, error.message)
        except PeerloomError as error:
            why = f"a generation could not be formed: {error.message}"
            raise JobEndedError(JobState.JOB_STATE_FAILED, why) from error

    def _fall_back(self, digest: str, reason: str) -> None:
        # Several workers refuse the same checkpoint; the first one decides.
        job = self.job
        if digest != job.checkpoint.artifact.digest:
            return
        refused = f"the checkpoint of step {job.checkpoint.step} ({digest[:12]}) can't be used: {reason}"
        if not job.HasField("previous_checkpoint"):
            self._crew.permanent_failure = f"{refused}; there is no older one"
            return
        job.checkpoint.CopyFrom(job.previous_checkpoint)
        job.ClearField("previous_checkpoint")
        older = f"{refused}; going on from the one of step {job.checkpoint.step}"
        self.set_state(JobState.JOB_STATE_WAITING, older)

    def _keep_checkpoint(self, worker_id: str, checkpoint: Checkpoint) -> None:
        async def keep() -> None:
            try:
                await self._around.collector.keep_checkpoint(self.job, worker_id, checkpoint)
                self.journal.note()
            except (PeerloomError, TimeoutError) as error:
                self._log.warning("checkpoint_not_kept", step=checkpoint.step, reason=str(error))

        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(keep())

    def _limits(self) -> Limits:
        config = self._around.config
        return Limits(
            start_timeout_s=config.start_timeout_s,
            reconnect_timeout_s=config.reconnect_timeout_s,
            agent_timeout_s=config.agent_timeout_s,
            min_workers=self.job.spec.min_workers,
            max_workers=slots_wanted(self.job.spec),
            meets_beside=self.job.backend != Backend.BACKEND_NCCL,
        )

    async def _complete(self, worker_id: str) -> None:
        self.set_state(JobState.JOB_STATE_FINISHING, "collecting the model")
        digests = parameter_digests(self._crew.mates)
        if len(digests) > 1:
            why = f"the workers' final parameters differ ({len(digests)} versions); no result can be trusted"
            raise JobEndedError(JobState.JOB_STATE_FAILED, why)
        finished = finish_of(self._crew.mates, worker_id)
        try:
            await self._around.collector.collect(self.job, worker_id, finished, self._witness)
        except (PeerloomError, TimeoutError) as error:
            why = f"the model could not be fetched: {error or 'it took too long'}"
            raise JobEndedError(JobState.JOB_STATE_FAILED, why) from error
        for node_id in nodes_that_finished(self._crew.mates):
            speed_gflops = speed_of_node(self._crew.mates, node_id)
            slots = slots_of_node(self._crew.mates, node_id)
            self._witness.trained(node_id, f"took part in {self.job.job_id} to its end", speed_gflops, slots)

    async def _end(self, end: JobEndedError) -> None:
        over = WorkerSessionResponse(end=EndWorker(reason=end.reason))
        # What is known so far must be durable before the workers, who know it too, are gone.
        self.job.ending_state, self.job.ending_reason = end.state, end.reason
        if self.job.workers:
            self.set_state(JobState.JOB_STATE_FINISHING, f"freeing the slots: {end.reason}")
            await self.journal.wait_written()
        for worker in self.job.workers:
            self._around.hub.send(worker.worker_id, over)
        # The end is told when the slots are free and the beliefs know: whoever waits for it may want both.
        await asyncio.gather(self._stop_everywhere(), self._around.reporter.flush(EVIDENCE_LIMIT_S))
        self._around.hub.forget(self.job.job_id)
        for worker in self.job.workers:
            if not worker.ended:
                worker.ended, worker.end_reason = True, "the job ended"
        self.job.ClearField("ending_state")
        self.job.ClearField("ending_reason")
        self.job.end_time.CopyFrom(to_timestamp(self._around.clock.wall_s()))
        self.set_state(end.state, end.reason)

    async def _stop_everywhere(self) -> None:
        addresses = {a.node.address for a in self.job.answers if a.accepted_slots}
        stop = self._around.recruiter.stop_on
        await asyncio.gather(*(stop(self.job.job_id, address) for address in addresses))

    def set_state(self, state: "JobState.ValueType", reason: str) -> None:
        """Notes the job's state and why."""
        self.job.state, self.job.state_reason = state, reason
        self.journal.note(WatchJobResponse(state_change=StateChange(state=state, reason=reason)))
        self._log.info("state_changed", state=JobState.Name(state), reason=reason)
        self._around.reporter.wake()
