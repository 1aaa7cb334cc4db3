"""Carries out what is decided of a job's generations, until its model is there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from peerloom.errors import DataLossError, PeerloomError
from peerloom.kit import tracing
from peerloom.kit.clock import Clock
from peerloom.kit.logs import get_logger
from peerloom.services.trainer.config import TrainerConfig
from peerloom.services.trainer.generations import decision_types as g
from peerloom.services.trainer.generations.decisions import decide_training
from peerloom.services.trainer.generations.forming import Former
from peerloom.services.trainer.generations.pace import FormingPace
from peerloom.services.trainer.generations.pipeline_decisions import (
    Begin,
    StageDivision,
    begin_pipeline,
    by_stage,
    called,
    decide_pipeline,
    division_of,
    near_each_other,
)
from peerloom.services.trainer.generations.plan_decisions import Planned
from peerloom.services.trainer.generations.planning import JobPlanner
from peerloom.services.trainer.generations.script_decisions import decide_script
from peerloom.services.trainer.generations.stage_states import GoBack, GoOn, newest_states
from peerloom.services.trainer.generations.sync_tuning import SyncTuner
from peerloom.services.trainer.jobs.plan_entries import is_divided, plan_in_use, without_unfit
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.jobs.script_runs import FailedForGood, charged, judge_restart
from peerloom.services.trainer.jobs.specs import slots_wanted
from peerloom.services.trainer.jobs.stage_entries import former_ranks, stage_starts
from peerloom.services.trainer.models.checkpoints import CheckpointKeeper
from peerloom.services.trainer.models.collecting import Collector
from peerloom.services.trainer.models.evaluation_rules import is_proven, not_as_told
from peerloom.services.trainer.nodes.evidence_outbox import Witness
from peerloom.services.trainer.workers.decisions import Limits, work_of_nodes
from peerloom.services.trainer.workers.pool import WorkerPool
from peerloom.services.trainer.workers.reports import why_not_complete
from peerloom.services.trainer.workers.state import Finished, WorkerState
from peerloom.v1.trainer_pb2 import Backend, EvaluationVerdict, Job, JobState

_log = get_logger()


@dataclass(eq=False)
class JobEndedError(Exception):
    """The job has reached its end; carries the final state and why."""

    state: "JobState.ValueType"
    reason: str


class GenerationDriver:
    """Asks for one decision after the other and does what it says."""

    def __init__(
        self,
        record: JobRecord,
        pool: WorkerPool,
        former: Former,
        checkpoints: CheckpointKeeper,
        collector: Collector,
        witness: Witness,
        tuner: SyncTuner,
        planner: JobPlanner,
        config: TrainerConfig,
        clock: Clock,
    ) -> None:
        self._record = record
        self._pool = pool
        self._former = former
        self._checkpoints = checkpoints
        self._collector = collector
        self._witness = witness
        self._tuner = tuner
        self._planner = planner
        self._config = config
        self._clock = clock
        self._pace = FormingPace()

    async def act(self) -> bool:
        """Carries out the next decision; True when the job is complete."""
        pool, former, record = self._pool, self._former, self._record
        failure = pool.failure or self._checkpoints.failure
        if failure:
            raise JobEndedError(JobState.JOB_STATE_FAILED, failure)
        job, now_s = record.job, self._clock.monotonic_s()
        states, limits = pool.states(), self._limits()
        match await self._decided(job, states, limits, now_s):
            case g.Wait() if limits.meets_beside and (form := self._tuner.change(states)) is not None:
                await self._form(form)
            case g.Wait(until_s=until_s):
                await pool.wait_for_change(None if until_s is None else until_s - now_s)
            case g.Hold(reason, until_s):
                reason = without_unfit(reason, job)
                if (job.state, job.state_reason) != (JobState.JOB_STATE_WAITING, reason):
                    record.state_changed(JobState.JOB_STATE_WAITING, reason)
                await pool.wait_for_change(None if until_s is None else until_s - now_s)
            case g.Silence(worker_ids, reason):
                _log.warning("workers_fell_silent", job=job.job_id, workers=worker_ids)
                pool.leave_behind(worker_ids, former.abort(reason, is_polite=False))
            case g.GiveUpOn(worker_ids, reason):
                for worker_id in worker_ids:
                    pool.give_up_on(worker_id, reason)
            case g.Abort(worker_ids, reason, is_polite):
                pool.leave(worker_ids, former.abort(reason, is_polite))
            case g.Dismiss(worker_ids, reason):
                pool.dismiss(worker_ids, reason)
            case g.Save(worker_id, reason):
                pool.ask_to_save(worker_id, reason)
            case Begin() | g.Form(beside=False) if (
                left_s := self._pace.left_s(job.progress.step, now_s)
            ) > 0:
                await pool.wait_for_change(left_s)
            case g.Form() as form:
                self._pace.formed(job.progress.step, now_s)
                await self._begin(form)
            case Begin() as begin:
                self._pace.formed(job.progress.step, now_s)
                await self._start_pipeline(begin)
            case g.Enter(reason):
                step = former.enter(reason)
                record.state_changed(JobState.JOB_STATE_RUNNING, f"{reason} and go on from step {step}")
            case g.Fail(reason):
                why = f"{reason}: {pool.last_loss}" if pool.last_loss else reason
                raise JobEndedError(JobState.JOB_STATE_FAILED, why)
            case g.Complete(reason=reason) if job.spec.HasField("script"):
                await self._checkpoints.settle()
                self._tell_trained()
                raise JobEndedError(JobState.JOB_STATE_SUCCEEDED, reason)
            case g.Complete(worker_id):
                await self._complete(worker_id)
                return True
        return False

    async def _decided(
        self, job: Job, states: Sequence[WorkerState], limits: Limits, now_s: float
    ) -> g.Decision | Begin:
        if job.spec.HasField("script"):
            return decide_script(states, job.generation, limits, now_s)
        if self._planner.has_a_say:
            return await self._planner.decide(states, limits, now_s)
        if is_divided(job):
            return decide_pipeline(states, job.generation, limits, now_s)
        return decide_training(job, states, limits, now_s)

    async def _begin(self, form: g.Form) -> None:
        if self._record.job.spec.HasField("script"):
            await self._start_script(form)
        else:
            await self._form(form)

    async def _start_pipeline(self, begin: Begin) -> None:
        # Stages that left politely have written a checkpoint, newer than the one that was decided upon.
        await self._checkpoints.settle()
        job = self._record.job
        newest = job.checkpoint.step if job.HasField("checkpoint") else None
        plan = plan_in_use(job)
        near = near_each_other(job, begin.worker_ids) if plan.pieces > 1 else begin.worker_ids
        worker_ids = by_stage(near, former_ranks(job))
        ranks = plan.ranks
        # A plan that was chosen says itself where its stages begin.
        division = StageDivision()
        if not self._planner.has_a_say:
            division = division_of(job, worker_ids, plan, self._pool.slots)
        states = newest_states([self._pool.held_by(worker_id) for worker_id in worker_ids], ranks, newest)
        if isinstance(states, GoOn) and len(stage_starts(job)) != ranks.stages:
            states = GoBack("a worker was lost before it said which layers its stage has")
        form = begin_pipeline(
            worker_ids, job.generation, newest, division, states, ranks.stages, called(plan)
        )
        await self._form(form if begin.plan is None else Planned(**vars(form), plan=begin.plan))

    async def _start_script(self, form: g.Form) -> None:
        # The files that rank 0 stored last come with its last word, or before it.
        await self._checkpoints.settle()
        job = self._record.job
        verdict = judge_restart(job, self._pool.states())
        if isinstance(verdict, FailedForGood):
            raise JobEndedError(JobState.JOB_STATE_FAILED, verdict.reason)
        why = f"{verdict.reason}: " if verdict.reason else ""
        form = replace(form, reason=f"{why}{form.reason}", from_checkpoint=job.HasField("checkpoint"))
        if await self._form(form) and verdict.is_charged:
            self._record.script_ran(charged(job.script_run))

    async def _form(self, form: g.Form) -> bool:
        try:
            if is_formed := await self._former.form(form) and not form.beside:
                self._record.state_changed(JobState.JOB_STATE_RUNNING, form.reason)
            return is_formed
        except DataLossError as error:
            self._checkpoints.refused(self._record.job.checkpoint.artifact.digest, error.message)
            return False
        except PeerloomError as error:
            why = f"a generation could not be formed: {error.message}"
            raise JobEndedError(JobState.JOB_STATE_FAILED, why) from error

    def _limits(self) -> Limits:
        config, job = self._config, self._record.job
        return Limits(
            start_timeout_s=config.start_timeout_s,
            reconnect_timeout_s=config.reconnect_timeout_s,
            agent_timeout_s=config.agent_timeout_s,
            min_workers=job.spec.min_workers,
            max_workers=slots_wanted(job.spec),
            meets_beside=job.backend != Backend.BACKEND_NCCL,
            batch_size=job.spec.batch_size,
        )

    async def _complete(self, worker_id: str) -> None:
        self._record.state_changed(JobState.JOB_STATE_FINISHING, "collecting the model")
        why = why_not_complete(self._record.job, self._pool.states())
        if why:
            raise JobEndedError(JobState.JOB_STATE_FAILED, why)
        holder = self._pool.state_of(worker_id)
        assert holder is not None, "it was decided upon just now"
        assert isinstance(holder.phase, Finished), "only who has finished holds the model"
        try:
            with tracing.span("collect model"):
                await self._collector.collect(self._record, worker_id, holder.phase.said, self._witness)
        except (PeerloomError, TimeoutError) as error:
            evaluation = self._record.job.evaluation
            if evaluation.verdict == EvaluationVerdict.EVALUATION_VERDICT_DIFFERS:
                self._tell_of_lie(worker_id, evaluation.reason)
                raise JobEndedError(JobState.JOB_STATE_FAILED, not_as_told(evaluation)) from error
            why = f"the model can't be kept: {error or 'fetching it took too long'}"
            raise JobEndedError(JobState.JOB_STATE_FAILED, why) from error
        self._tell_trained()

    def _tell_trained(self) -> None:
        for node_id, work in work_of_nodes(self._pool.states()).items():
            detail = f"took part in {self._record.job_id} to its end"
            self._witness.trained(node_id, detail, work.speed_gflops, work.slots)

    def _tell_of_lie(self, worker_id: str, reason: str) -> None:
        # Of the node whose worker brought the model and told of its metric, if no other owner took part.
        workers = [worker for worker in self._record.job.workers if worker.generation]
        if is_proven({self._pool.owner_of(worker.worker_id) for worker in workers}):
            self._witness.lied(self._record.worker(worker_id).node_id, reason)
