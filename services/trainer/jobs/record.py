"""A job's record: everything that is known of the job, written here and nowhere else.

Each verb changes the record and appends what happened to the event log in one step, so neither is ever
without the other. Some changes are of no interest to a watcher and have no event; they are appended all
the same, so that they become durable. Everybody else reads `job`, a copy as of now.
"""

from collections.abc import Iterable, Mapping, Sequence

from peerloom.kit.clock import to_timestamp
from peerloom.kit.limits import cut_reason
from peerloom.services.trainer.jobs import plan_entries, sample_ledger, stage_entries, sync_entries
from peerloom.services.trainer.jobs.audit_entries import count_audits, enter
from peerloom.services.trainer.jobs.plan_entries import ChosenPlan
from peerloom.services.trainer.jobs.recorded_job import RecordedJob
from peerloom.services.trainer.jobs.sync_entries import JudgedSync
from peerloom.v1.selector_pb2 import Evidence
from peerloom.v1.trainer_pb2 import (
    Backend,
    Checkpoint,
    EpochProgress,
    Evaluation,
    GenerationFormed,
    JobResult,
    JobSpec,
    JobState,
    ModelStage,
    NetworkTraffic,
    NodeAnswer,
    NodeChoice,
    ScriptRun,
    StageShadow,
    StateChange,
    StepProgress,
    WatchJobResponse,
    Worker,
    WorkerLost,
    WorkerPrepared,
)

RATE_WINDOW = 0.9  # weight of the past in the shown samples a second


class JobRecord(RecordedJob):
    """One job's record and its event log. Everything else in the trainer asks it for every change."""

    # Asking for compute
    def round_begun(self, reason: str) -> None:
        """The first nodes are looked for; what an earlier round found is void."""
        del self._job.answers[:], self._job.workers[:]
        self.state_changed(JobState.JOB_STATE_SELECTING, reason)

    def nodes_chosen(self, choice: NodeChoice) -> None:
        """The selector named whom to ask; a choice like the one before is passed over."""
        if choice != self._job.choice:
            self._job.choice.CopyFrom(choice)
            self._append()

    def answered(self, answer: NodeAnswer) -> None:
        """A node answered a request for work."""
        self._job.answers.append(answer)
        kept = self._job.answers[-1]
        kept.reason = cut_reason(kept.reason)
        self._append(WatchJobResponse(answer=kept))

    def node_moved(self, node_id: str, address: str) -> None:
        """A node that gave slots is reached there now."""
        for answer in (answer for answer in self._job.answers if answer.node.node_id == node_id):
            answer.node.address = address
        self._append()

    def slots_found(self, backend: "Backend.ValueType", reason: str) -> None:
        """Enough slots were given, and they decide on the collective library."""
        self._job.backend = backend
        self.state_changed(JobState.JOB_STATE_STARTING, reason)

    def workers_admitted(self, secrets: Mapping[str, str]) -> None:
        """These workers, by id, are about to be started; each proves itself with its secret."""
        self._append(secrets=secrets)

    def workers_added(self, workers: Iterable[Worker]) -> None:
        """These were started."""
        self._job.workers.extend(workers)
        self._append()

    def evidence_given(self, evidence: Evidence) -> None:
        """Something was seen of a node that moves the belief in it."""
        self._append(evidence=[evidence])

    # Workers come and go

    def task_loaded(self, prepared: WorkerPrepared) -> None:
        """A worker found out by loading the task what the job left open, and how long the job is.

        What the job says already stays: the others say the same.
        """
        job = self._job
        sync_entries.task_loaded(job, prepared.bears_rounds)
        for name in ("epochs", "batch_size", "learning_rate"):
            if not job.spec.HasField(name):
                setattr(job.spec, name, getattr(prepared, name))
        job.ledger.training_samples = prepared.training_samples
        job.progress.total_epochs = job.spec.epochs
        sample_ledger.plan_to_end(job)
        self._append()

    def worker_lost(self, worker_id: str, reason: str, *, is_unfit: bool = False) -> None:
        """A worker will not come back; `is_unfit`: its node can't do this job under its plan."""
        worker = self._end_worker(worker_id, reason)
        worker.unfit = is_unfit
        self._append(WatchJobResponse(worker_lost=WorkerLost(worker=worker, reason=worker.end_reason)))

    def worker_dismissed(self, worker_id: str, reason: str) -> None:
        """A worker was let go: that is no loss."""
        self._end_worker(worker_id, reason)
        self._append()

    # Audits

    def audit_entered(self, event: WatchJobResponse) -> None:
        """Something came of an audit: an accusation, a dismissal, that there are none, a refused gradient."""
        enter(self._job, event)
        self._append(event)

    def audits_made(self, worker_id: str, made: int) -> None:
        """A worker has made so many audits; what is known already is passed over."""
        if count_audits(self._job, worker_id, made):
            self._append()

    # Generations

    def generation_begun(
        self,
        worker_ids: Sequence[str],
        first_step: int,
        reason: str,
        beside: bool,
        sync: str = "",
        plan: ChosenPlan | None = None,
    ) -> None:
        """The next generation has these workers, ranked in this order, and goes on from `first_step`.

        What came after that step was lost with all who had it, and is done again. `beside`: the generation
        meets first, while the one before it works on; where it goes on is known when it is entered. `sync`
        and `plan` take the place of those in use.
        """
        job = self._job
        if first_step < job.progress.step and not beside:
            sample_ledger.go_back_in(job, first_step)
        job.generation += 1
        sample_ledger.plan_to_end(job)
        stage_entries.rank_workers(job, worker_ids)
        if (changed := sync_entries.take(job, sync, reason)) is not None:
            self._append(WatchJobResponse(sync_changed=changed))
            reason = f"changing to {changed.method}: {reason}"
        if plan is not None and (chosen := plan_entries.take(job, plan)) is not None:
            self._append(WatchJobResponse(plan_chosen=chosen))
        if beside:
            self.state_changed(job.state, reason)
        else:
            self.generation_entered(worker_ids, first_step)

    def generation_entered(self, worker_ids: Iterable[str], first_step: int) -> None:
        """The newest generation works from `first_step` on, with these of its workers."""
        job, members = self._job, set(worker_ids)
        workers = [worker for worker in job.workers if worker.worker_id in members]
        ranked = sorted(workers, key=lambda worker: worker.rank)
        formed = GenerationFormed(generation=job.generation, workers=ranked, backend=job.backend)
        formed.first_step, formed.sync = first_step, sync_entries.in_use(job)
        self._append(WatchJobResponse(generation_formed=formed))

    def sync_judged(self, judged: JudgedSync) -> None:
        """What is thought of the method in use."""
        if sync_entries.judge(self._job, judged):
            self._append()

    def plan_measured(self, step_s: float) -> None:
        """What steps take with the plan that was chosen, the median."""
        if plan_entries.note_measured(self._job, step_s):
            self._append()

    def stage_entered(self, worker_id: str, stage: ModelStage) -> None:
        """A worker holds this part of the model in the newest generation; said again it is passed over."""
        if stage_entries.enter_stage(self._job, worker_id, stage):
            self._append()

    def shadow_told(self, worker_id: str, shadow: StageShadow) -> None:
        """A worker keeps this copy of another stage's state, or none."""
        if why_not := stage_entries.enter_shadow(self._job, worker_id, shadow):
            self.state_changed(self._job.state, f"no shadows of stages are kept: {why_not}")
        elif why_not is not None:
            self._append()

    # Progress: each step and epoch enters once, however often it is reported
    def step_committed(self, step: StepProgress, age_s: float = 0.0) -> None:
        """A step was committed, so many seconds ago; one that is known already is passed over."""
        job = self._job
        if step.step <= job.progress.step:
            return  # sent again after the session was broken
        if not job.HasField("first_step_time"):
            job.first_step_time.CopyFrom(to_timestamp(self._clock.wall_s() - age_s))
        past = job.progress.samples_per_s or step.samples_per_s
        job.progress.samples_per_s = RATE_WINDOW * past + (1 - RATE_WINDOW) * step.samples_per_s
        job.progress.step, job.progress.loss, self.last_step_s = step.step, step.loss, step.step_s
        for name, value in step.metrics.items():
            job.progress.metrics[name] = value
        sample_ledger.add_step(job.ledger, step)
        self._append(WatchJobResponse(step=step), age_s=age_s, is_routine=True)

    def epoch_committed(self, epoch: EpochProgress) -> None:
        """An epoch is complete; one that is known already is passed over."""
        done = self._job.progress
        if epoch.epoch > done.epoch:
            done.epoch, done.metric, done.metric_name = epoch.epoch, epoch.metric, epoch.metric_name
            self._append(WatchJobResponse(epoch=epoch))

    def loop_stopped(self, step: int) -> None:
        """A script ended its loop after this step; a later generation is told anew, or goes on."""
        self._job.progress.stopped_at_step = self._job.progress.total_steps = step
        self._append()

    def script_ran(self, run: ScriptRun) -> None:
        """A process of a script failed, or the script is started again."""
        self._job.script_run.CopyFrom(run)
        self._append()

    # What is kept

    def checkpoint_kept(self, checkpoint: Checkpoint) -> None:
        """A newer checkpoint is durable; the one before it stays, for the case that it can't be used.

        One of steps that were lost while it was copied is passed over: they are done again, by others.
        """
        job = self._job
        if checkpoint.step > job.progress.step:
            return
        if job.HasField("checkpoint"):
            job.previous_checkpoint.CopyFrom(job.checkpoint)
        job.checkpoint.CopyFrom(checkpoint)
        self._append()

    def checkpoint_refused(self, reason: str) -> None:
        """The newest checkpoint can't be used: the one before it is the newest now."""
        self._job.checkpoint.CopyFrom(self._job.previous_checkpoint)
        self._job.ClearField("previous_checkpoint")
        older = f"{reason}; going on from the one of step {self._job.checkpoint.step}"
        self.state_changed(JobState.JOB_STATE_WAITING, older)

    def model_evaluated(self, evaluation: Evaluation) -> None:
        """The trainer has looked at the model, or says why it hasn't."""
        self._job.evaluation.CopyFrom(evaluation)
        self._append(WatchJobResponse(evaluation=self._job.evaluation))

    def result_kept(self, result: JobResult) -> None:
        """The model is here, and with the nodes that were given copies."""
        self._job.result.CopyFrom(result)
        self._append()

    def traffic_recorded(self, traffic: NetworkTraffic) -> None:
        """What the job's network carried was counted."""
        self._job.traffic.CopyFrom(traffic)
        self._append()

    # The job's state

    def state_changed(self, state: "JobState.ValueType", reason: str) -> None:
        """The job is in this state from now on."""
        self._job.state, self._job.state_reason = state, (reason := cut_reason(reason))
        self._append(WatchJobResponse(state_change=StateChange(state=state, reason=reason)))
        self._logger.info("state_changed", state=JobState.Name(state), reason=reason)

    def end_decided(self, state: "JobState.ValueType", reason: str) -> None:
        """The job will end so, once its slots are free."""
        self._job.ending_state, self._job.ending_reason = state, cut_reason(reason)
        if self._job.workers:
            self.state_changed(JobState.JOB_STATE_FINISHING, f"freeing the slots: {reason}")
        else:
            self._append()

    def ended(self, state: "JobState.ValueType", reason: str) -> None:
        """The job has ended, and with it its workers."""
        for worker in (each for each in self._job.workers if not each.ended):
            worker.ended, worker.end_reason = True, "the job ended"
        self._job.ClearField("ending_state")
        self._job.ClearField("ending_reason")
        self._job.end_time.CopyFrom(to_timestamp(self._clock.wall_s()))
        self.state_changed(state, reason)

    def resumed(self, traceparent: str = "", spec: JobSpec | None = None) -> None:
        """A job that had ended goes on from its checkpoint, perhaps by another `spec`.

        What was found at its end is void. From now on it is part of the trace that `traceparent` names.
        """
        self._job.traceparent = traceparent
        self._job.spec.CopyFrom(spec or self.job.spec)
        plan_entries.resume(self._job)
        if spec is not None:
            sync_entries.forget_task(self._job)
        how = "" if spec is None else f", under plan {spec.plan}"
        self.state_changed(JobState.JOB_STATE_QUEUED, f"resumed from its checkpoint{how}")
