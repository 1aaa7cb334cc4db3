"""What a job makes of its workers' sessions: a message gives a worker's next state, or enters the record."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from peerloom.kit.clock import Clock
from peerloom.kit.ids import new_secret
from peerloom.services.trainer.generations.planning import JobPlanner
from peerloom.services.trainer.generations.sync_tuning import SyncTuner
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.jobs.sample_ledger import total_steps
from peerloom.services.trainer.jobs.script_runs import noted_exit
from peerloom.services.trainer.jobs.stage_entries import exchanges_of
from peerloom.services.trainer.models.checkpoints import CheckpointKeeper
from peerloom.services.trainer.workers.accusations import SAYS, AuditKeeper
from peerloom.services.trainer.workers.decisions import REPORT_INTERVAL_S
from peerloom.services.trainer.workers.failure_detector import BEAT_INTERVAL_S
from peerloom.services.trainer.workers.pool import WorkerPool
from peerloom.services.trainer.workers.rendezvous import Rendezvous
from peerloom.services.trainer.workers.reports import (
    why_not_finished,
    why_not_said,
    why_not_step,
    why_not_together,
)
from peerloom.services.trainer.workers.session_router import SessionRouter
from peerloom.services.trainer.workers.stage_reports import steps_of_stages, why_not_held
from peerloom.services.trainer.workers.state import Leaving, Lost, Silent, WorkerState
from peerloom.v1.trainer_pb2 import (
    AbortGeneration,
    EndWorker,
    PrepareWorker,
    Worker,
    WorkerAborted,
    WorkerFailed,
    WorkerFinished,
    WorkerSessionRequest,
    WorkerSessionResponse,
    WorkerSteps,
)

# These change no worker's phase: nothing is to be decided anew.
_ROUTINE = ("epoch", "beat", "checkpoint", "entry", "measured", *SAYS)


class WorkerSessions:
    """Listens to one job's workers on behalf of its pool, its record and its checkpoints."""

    def __init__(
        self,
        record: JobRecord,
        pool: WorkerPool,
        checkpoints: CheckpointKeeper,
        router: SessionRouter,
        rendezvous: Rendezvous,
        audits: AuditKeeper,
        tuner: SyncTuner,
        planner: JobPlanner,
        clock: Clock,
        checkpoint_interval_s: float,
    ) -> None:
        self._record = record
        self._pool = pool
        self._checkpoints = checkpoints
        self._router = router
        self._rendezvous = rendezvous
        self._audits = audits
        self._tuner = tuner
        self._planner = planner
        self._clock = clock
        self._checkpoint_interval_s = checkpoint_interval_s

    async def admit(self, worker_ids: Sequence[str], node_id: str) -> list[str]:
        """Makes a secret for each worker that is about to be started on this node.

        From now on they may open sessions, and where there are certificates from this node alone.
        """
        secrets = {worker_id: new_secret() for worker_id in worker_ids}
        self._router.admit(self._record.job_id, secrets, node_id)
        self._record.workers_admitted(secrets)
        # A trainer that is started again must know whom this one started.
        await self._record.log.wait_written()
        return list(secrets.values())

    def expect(self, workers: Iterable[Worker]) -> None:
        """These workers were started; one may have been faster than the answers of the other nodes."""
        started = list(workers)
        self._record.workers_added(started)
        self._pool.add(started)
        self._greet(worker.worker_id for worker in started)

    def resume(self) -> None:
        """The job goes on after a restart of the trainer; some of its workers may have come back already."""
        self._pool.resume()
        job = self._record.job
        members = [worker.worker_id for worker in job.workers if worker.generation == job.generation]
        self._rendezvous.begin(job.generation, members)  # they say anew what the last trainer knew
        self._greet(state.worker_id for state in self._pool.states())

    def _greet(self, worker_ids: Iterable[str]) -> None:
        for worker_id in worker_ids:
            hello = self._router.hello_of(worker_id)
            if hello is not None:
                self.session_opened(hello)

    def session_opened(self, request: WorkerSessionRequest) -> None:
        """A worker said hello: for the first time, or again after its session broke."""
        hello = request.hello
        state = self._pool.state_of(hello.worker_id)
        if state is None or isinstance(state.phase, Lost):
            self._dismiss_if_ended(hello.worker_id)
            return
        if reason := why_not_together(hello.is_tls, state, self._pool.states()):
            self._pool.refuse(hello.worker_id, reason)
            return
        prepare = PrepareWorker(
            spec=self._record.job.spec,
            beat_interval_s=BEAT_INTERVAL_S,
            checkpoint_interval_s=self._checkpoint_interval_s,
            report_interval_s=REPORT_INTERVAL_S,
        )
        self._pool.send(hello.worker_id, WorkerSessionResponse(prepare=prepare))
        if isinstance(state.phase, Leaving | Silent) and hello.generation:
            # The one that it works in, or has just begun to enter without having heard that it is broken.
            abort = AbortGeneration(generation=self._record.generation, reason="the generation is broken")
            self._pool.send(hello.worker_id, WorkerSessionResponse(abort=abort))
        newest = self._record.generation
        connected = state.connected(hello.committed_step, hello.generation, newest, hello.is_tls)
        self._pool.become(replace(connected, owner=hello.owner, accelerator_kind=hello.accelerator_kind))
        self._rendezvous.repeat_to(hello.worker_id)
        self._pool.send(hello.worker_id, self._pool.recorded())

    def _dismiss_if_ended(self, worker_id: str) -> None:
        """One that was given up, and lives, holds a slot that its replacement may need."""
        workers = self._record.job.workers
        if any(worker.ended and worker.worker_id == worker_id for worker in workers):
            over = EndWorker(reason="the job went on without it")
            self._pool.send(worker_id, WorkerSessionResponse(end=over))

    def session_closed(self, worker_id: str) -> None:
        """A worker's session broke; it may come back."""
        self._pool.stopped_hearing(worker_id)

    def session_message(self, worker_id: str, request: WorkerSessionRequest) -> None:
        """A worker said something."""
        state = self._pool.state_of(worker_id)
        if state is None or isinstance(state.phase, Lost):
            self._dismiss_if_ended(worker_id)  # it was frozen for so long that it was given up
            return
        self._pool.heard(worker_id)
        kind = request.WhichOneof("message")
        # Others may make the steps again that one reports who was left behind; it reports anew when it works.
        if kind == "epoch" and state.is_left_behind:
            pass
        elif reason := why_not_said(self._record.job, request):
            self._pool.refuse(worker_id, reason)
        elif kind == "steps":
            self._steps(worker_id, request.steps)
        elif kind in _ROUTINE:
            self._routine(state, request)
        else:
            self._turn(state, request)

    def _steps(self, worker_id: str, said: WorkerSteps) -> None:
        for step, age_s in zip(said.steps, said.ages_s, strict=True):
            state = self._pool.state_of(worker_id)
            if state is None or isinstance(state.phase, Lost):
                return
            if not state.is_left_behind:
                if reason := why_not_step(self._record.job, step):
                    self._pool.refuse(worker_id, reason)
                    return
                self._record.step_committed(step, age_s)
                self._tuner.stepped(step)
                self._planner.stepped(step)
            self._pool.note(state.reached(step.step))

    def _routine(self, state: WorkerState, request: WorkerSessionRequest) -> None:
        match request.WhichOneof("message"):
            case "epoch":
                self._record.epoch_committed(request.epoch)
            case "beat":
                alive = state.reached(request.beat.committed_step).loading(self._clock.monotonic_s())
                self._pool.note(alive)
                self._pool.slots.computed(state.worker_id, request.beat.compute_s_per_sample)
                self._record.audits_made(state.worker_id, request.beat.audits)
                if request.beat.HasField("shadow"):
                    self._record.shadow_told(state.worker_id, request.beat.shadow)
            case "measured":
                self._tuner.heard(state.worker_id, request.measured)
                self._planner.measured(request.measured, state.worker_id)
            case "checkpoint":
                departs = state.is_departing
                self._checkpoints.offered(state.worker_id, request.checkpoint, is_pressing=departs)
            case "entry":
                if reason := self._rendezvous.say(state.worker_id, request.entry):
                    self._pool.refuse(state.worker_id, reason)
            case _:
                self._audits.heard(state, request)

    def _turn(self, state: WorkerState, request: WorkerSessionRequest) -> None:
        newest = self._record.generation
        match request.WhichOneof("message"):
            case "prepared":
                if not self._record.job.spec.HasField("script"):
                    self._record.task_loaded(request.prepared)
                self._planner.surveyed(state.worker_id, request.prepared)
                if request.prepared.speed_gflops and not self._planner.has_a_say:
                    self._pool.slots.computed(state.worker_id, 1 / request.prepared.speed_gflops)
                told = request.prepared
                self._pool.slots.has_memory(state.worker_id, told.free_bytes, told.used_bytes)
                self._pool.become(state.prepared())
            case "aborted" if state.is_let_go_by(request.aborted.generation, newest):
                self._let_go(state, request.aborted)
            case "met" if request.met.generation == newest:
                self._pool.become(state.met())
            case "ready" if request.ready.generation == newest:
                if request.ready.HasField("stage"):
                    self._record.stage_entered(state.worker_id, request.ready.stage)
                    if why := exchanges_of(request.ready.stage):
                        self._record.state_changed(self._record.job.state, why)
                if self._planner.has_a_say:  # it may have made more steps, as a stage of the plan before
                    state = replace(state, step=min(state.step, int(self._record.job.progress.step)))
                self._pool.become(state.ready())
            case "leaving":
                leaving, now_s = request.leaving, self._clock.monotonic_s()
                self._pool.become(state.departing(leaving.grace_s, leaving.reason, now_s))
                self._pool.someone_departs.set()
            case "staying":
                self._pool.become(state.staying())
            case "finished" if request.finished.generation == newest:
                self._finished(state, request.finished)
            case "finished" if state.is_let_go_by(request.finished.generation, newest):
                self._left_by_finishing(state, request.finished)
            case "failed":
                self._failed(state.worker_id, request.failed)

    def _finished(self, state: WorkerState, said: WorkerFinished) -> None:
        job = self._record.job
        reason = why_not_finished(job, self._record.worker(state.worker_id), said)
        if not reason:
            self._record.audits_made(state.worker_id, said.audits)
            if said.HasField("script_files"):
                self._checkpoints.offered(state.worker_id, said.script_files)
            if said.stopped_at_step and said.model.digest:
                self._record.loop_stopped(said.stopped_at_step)
            self._pool.become(state.finished(said, said.stopped_at_step or total_steps(job)))
        elif state.is_left_behind:  # what it reported did not count: it reports anew in the next generation
            self._pool.become(state.let_go(state.step))
        else:
            self._pool.refuse(state.worker_id, reason)

    def _left_by_finishing(self, state: WorkerState, said: WorkerFinished) -> None:
        # The trainer that formed the newest generation died before this worker heard of it; and no worker
        # answers that it leaves a generation whose training it has behind it.
        held = () if why_not_held(self._record.job, said.held) else steps_of_stages(said.held)
        self._pool.become(state.let_go(state.step, held))

    def _let_go(self, state: WorkerState, aborted: WorkerAborted) -> None:
        job = self._record.job
        if aborted.HasField("script_exit") and aborted.generation == job.generation:
            node_name = self._record.worker(state.worker_id).node_name
            run = noted_exit(job.script_run, job.generation, aborted.script_exit, node_name)
            self._record.script_ran(run)
        if aborted.HasField("script_files"):
            self._checkpoints.offered(state.worker_id, aborted.script_files)
        self._pool.become(state.let_go(aborted.committed_step, steps_of_stages(aborted.held)))
        if aborted.refused_checkpoint:
            self._checkpoints.refused(aborted.refused_checkpoint, aborted.reason)

    def _failed(self, worker_id: str, failed: WorkerFailed) -> None:
        if failed.is_permanent:
            node_name = self._record.worker(worker_id).node_name
            self._pool.fail(f"{worker_id} on {node_name}: {failed.reason}")
        else:
            self._pool.refuse(worker_id, failed.reason, is_unfit=True)
