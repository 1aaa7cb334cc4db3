"""A worker's life: load the task, then join generation after generation until the trainer ends it."""

import signal
import traceback
from functools import partial

import torch

from peerloom.errors import DataLossError, InvalidArgumentError, PeerloomError
from peerloom.kit import tracing
from peerloom.kit.logs import get_logger
from peerloom.kit.parallel_plan import parse_plan
from peerloom.kit.sync_auto import is_auto
from peerloom.v1.trainer_pb2 import (
    AbortGeneration,
    ConfigureGeneration,
    EndWorker,
    PrepareWorker,
    SaveState,
    WorkerAborted,
    WorkerFailed,
    WorkerMeasured,
    WorkerMet,
    WorkerReady,
    WorkerSessionRequest,
)
from peerloom.worker.agent_artifacts import fetch_artifact
from peerloom.worker.agent_commands import AgentCommands
from peerloom.worker.assignment import Assignment
from peerloom.worker.auditing import Auditor
from peerloom.worker.balance import Balance
from peerloom.worker.beginning import TaskBeginning, check_first_step, method_of, refuse_plain, take_device
from peerloom.worker.checkpoint_writer import CheckpointWriter, refuse_checkpoint
from peerloom.worker.failures import CUT_OFF, failure_of
from peerloom.worker.federated.federated_training import FederatedTraining
from peerloom.worker.generation_spans import FirstStep, generation_span
from peerloom.worker.group.process_group import Group
from peerloom.worker.group.relay.relay import host_of, open_relay
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.joining.participants import Joining, agree_on_beginning, begin_joining
from peerloom.worker.leading_trainer import leading_trainer
from peerloom.worker.loop import train_generation
from peerloom.worker.measuring.generation_measuring import GenerationMeasuring
from peerloom.worker.measuring.node_measures import NodeMeasures
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.stage_run import enter_stage, run_stage
from peerloom.worker.result import result_of
from peerloom.worker.script.script_worker import ScriptWorker
from peerloom.worker.stale.stale_training import StaleTraining
from peerloom.worker.trainer_session import TrainerSession
from peerloom.worker.training import Training

_log = get_logger()


def run_worker(assignment: Assignment, agent: AgentCommands) -> int:
    """Works until the trainer says that the job is over; 0, or 1 when this worker can't go on."""
    torch.set_num_threads(assignment.threads)
    is_script = assignment.work.script_arguments is not None
    worker = ScriptWorker(assignment) if is_script else TrainingWorker(assignment)
    signal.signal(signal.SIGTERM, lambda *_: worker.ask_to_leave("its node asked it to leave"))
    agent.listen(worker.ask_to_leave, worker.ask_to_stay)
    try:
        return worker.run()
    except CUT_OFF as error:
        _log.error("worker_cut_off", reason=error.message)
    except Exception as error:
        if not isinstance(error, PeerloomError):
            traceback.print_exc()
        give_up(worker.session, failure_of(error))
    return 1


def give_up(session: TrainerSession, failed: WorkerFailed) -> None:
    """Tells the trainer that this worker can't go on, and waits until it has heard it."""
    _log.error("worker_failed", reason=failed.reason)
    session.say(WorkerSessionRequest(failed=failed))
    while not isinstance(session.commands.get(timeout=30), EndWorker):
        pass


class TrainingWorker:
    """One training process: its session, its training, and the group of the moment."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._relay = open_relay(assignment)
        is_tls = self._relay is not None
        self._auditor = Auditor(lambda message: self.session.answer(message))
        self.session = TrainerSession(
            assignment, self._abort, self._form_ahead, self._auditor.order, is_tls=is_tls
        )
        self._checkpoint_interval_s = 0.0
        self._group: Group | None = None
        self._measures = NodeMeasures()
        self._formed_ahead: dict[int, Group] = {}  # that meet while another works
        kind = assignment.accelerator_kind
        self._device = torch.device(kind, assignment.device_index) if kind == "cuda" else torch.device("cpu")
        self._beginning = TaskBeginning(assignment, self._device)

    def run(self) -> int:
        """Follows the trainer's commands until the job is over."""
        self.session.start()
        while True:
            command = self.session.commands.get()
            if isinstance(command, EndWorker):
                _log.info("worker_ended", reason=command.reason)
                return 0
            if isinstance(command, SaveState):
                self._save()
            elif isinstance(command, PrepareWorker):
                take_device(self._device)  # not before: the trainer hears whom it has greeted
                self._checkpoint_interval_s = command.checkpoint_interval_s
                told = self._beginning.told(command.spec)
                if told.speed_gflops and not told.parts:
                    self.session.set_work(1 / told.speed_gflops, 0)
                self.session.answer(WorkerSessionRequest(prepared=told))
            else:
                with generation_span(command):
                    self._work(command)

    def ask_to_leave(self, reason: str, grace_s: float = 0.0) -> None:
        """The node wants its slot back: hands over at a step boundary, then the trainer ends this worker.

        `grace_s` is how long it may wait for a replacement.
        """
        self.session.leave(reason, grace_s)

    def ask_to_stay(self) -> None:
        """The node doesn't want its slot back any more."""
        self.session.stay()

    def _save(self) -> None:
        if isinstance(training := self._beginning.made, Training):
            writer = CheckpointWriter(self._assignment, 0.0, self.session.report_checkpoint)
            writer.write_now(training.state)

    def _abort(self, abort: AbortGeneration) -> None:
        for group in [*self._formed_ahead.values(), *([self._group] if self._group else [])]:
            if abort.at_step:
                if group.generation == abort.generation:
                    group.leave_at(abort.at_step, abort.reason)
            elif not abort.generation or group.generation <= abort.generation:
                group.break_from_outside(abort.reason)

    def _form_ahead(self, config: ConfigureGeneration) -> None:
        # In the session's thread, while the training goes on.
        met = WorkerSessionRequest(met=WorkerMet(generation=config.generation))
        group = self._formed_ahead[config.generation] = self._new_group(config)
        group.meet(lambda: self.session.answer(met))

    def _new_group(self, config: ConfigureGeneration) -> Group:
        spared = (leading_trainer(self._assignment), self._assignment.agent_address)
        entries = self.session.entries.of(config.generation)
        reached_at = (self._assignment.agent_address, self._assignment.interface)
        # Where the method may change the ways between all workers are measured, on the mesh.
        may_change = is_auto(config.spec.sync)
        is_divided = parse_plan("spec.plan", config.spec.plan).is_divided
        needs_mesh = method_of(config).needs_mesh or may_change or is_divided
        mesh_host = host_of(*reached_at) if needs_mesh else ""
        # Between stages numbers go by way of the processor, as their tensors do.
        device = torch.device("cpu") if is_divided else self._device
        return Group(config, device, entries, *spared, relay=self._relay, mesh_host=mesh_host)

    def _work(self, config: ConfigureGeneration) -> None:
        training = self._beginning.training(config.spec)
        own_batches = isinstance(training, FederatedTraining)
        if config.world_size > training.schedule.batch_size and not own_batches:
            limit = f"at least the number of workers, {config.world_size}"
            raise InvalidArgumentError.of_field("batch_size", training.schedule.batch_size, limit)
        if self._relay is not None:
            refuse_plain(config)
        if not self._took_state(training, config):
            return
        if isinstance(training, Training):
            training.use(method_of(config))
            training.draw_ahead(config.first_step)
        group = self._group = self._formed_ahead.get(config.generation) or self._new_group(config)
        self._formed_ahead.pop(config.generation, None)
        if why_over := self.session.why_over(config.generation):
            group.break_from_outside(why_over)
        _log.info("generation_joined", generation=config.generation, rank=config.rank)
        try:
            if isinstance(training, Training):
                check_first_step(training.state.step, config)
            if config.world_size > 1:
                with tracing.span("join generation"):
                    group.form()
            if isinstance(training, PipelineTraining):
                interval_s, told = (
                    self._checkpoint_interval_s,
                    (self._beginning.spec, self._assignment, self.session),
                )
                run_stage(training, group, config, *told, interval_s)
            else:
                joining = self._join(training, group, config.newcomers)
                self._train(training, group, joining, config)
        except GenerationBrokenError as broken:
            self.session.set_position(training.state.step, 0)
            aborted = WorkerAborted(
                generation=config.generation, committed_step=training.state.step, reason=str(broken)
            )
            _log.warning("generation_broken", generation=config.generation, reason=str(broken))
            tracing.note(broken=str(broken))
            if isinstance(training, PipelineTraining):
                aborted.held.extend(training.held())
            group.close()
            self.session.say(WorkerSessionRequest(aborted=aborted))
        else:
            group.close()

    def _took_state(self, training: Training | PipelineTraining, config: ConfigureGeneration) -> bool:
        try:
            if isinstance(training, PipelineTraining):
                enter_stage(training, config, self._beginning.spec, self._assignment)
                return True
            if config.checkpoint_digest or not config.first_step:
                # What it has made beyond that, as a stage perhaps, is made again.
                epochs = config.first_step // training.schedule.steps_per_epoch
                self.session.progress.forget_after(config.first_step, epochs)
            if config.checkpoint_digest:
                training.restore(fetch_artifact(self._assignment, config.checkpoint_digest))
        except DataLossError as error:
            if not config.checkpoint_digest:
                raise
            refuse_checkpoint(self.session, config, error.message)
            return False
        training.state.reopen_epoch(training.schedule.steps_per_epoch)
        return True

    def _join(self, training: Training, group: Group, newcomers: int) -> Joining:
        if not newcomers:
            if not training.begins_alike:
                agree_on_beginning(training.state, group)
            return Joining(group, training.state)
        host = self._assignment.agent_address.rpartition(":")[0]
        figures = training.figures
        step_s = figures.training_s / figures.steps if figures.steps else 0.0
        try:
            return begin_joining(
                training.state,
                training.schedule,
                group,
                newcomers,
                host,
                step_s,
                partial(self._say_ready, group),
            )
        except RuntimeError as error:
            raise group.broken(error) from error

    def _train(self, training: Training, group: Group, joining: Joining, config: ConfigureGeneration) -> None:
        session = self.session
        session.set_position(training.state.step, config.generation)
        if joining.catch_up is None:
            self._say_ready(group)
        # Who took the state from another can't tell of the last step before it.
        session.progress.set_reporting(group.rank == joining.source)
        shares = list(config.batch_shares) or [1] * config.world_size
        is_own = isinstance(training, FederatedTraining | StaleTraining)
        is_fixed = self._beginning.spec.equal_shares or is_own
        balance = Balance(shares, is_fixed)

        interval_s = self._checkpoint_interval_s if group.rank == 0 else 0.0
        checkpoints = CheckpointWriter(self._assignment, interval_s, session.report_checkpoint)
        known = (self._beginning.spec, self._measures, config.ways_known)
        measuring, first = GenerationMeasuring(training, group, *known, self._say_measured), FirstStep()

        def on_step(step: int) -> None:
            first.committed(step)
            session.set_position(step, group.generation)
            session.set_work(training.figures.compute_s_per_sample, self._auditor.made)
            checkpoints.after_step(training.state)
            share = balance.shares[group.rank] / sum(balance.shares)
            measuring.after_step(share * training.schedule.batch_size, len(training.steps_at_once(0)))

        try:
            train_generation(training, group, joining, balance, session.progress.add, on_step, self._auditor)
        finally:
            measuring.close()
        finished = result_of(training, self._beginning.spec, self._assignment, config)
        finished.audits = self._auditor.made
        if training.state.step < training.schedule.total_steps:  # as its script says
            finished.stopped_at_step = training.state.step
        session.say(WorkerSessionRequest(finished=finished))

    def _say_measured(self, measured: WorkerMeasured) -> None:
        self.session.measured = WorkerSessionRequest(measured=measured)
        self.session.answer(self.session.measured)

    def _say_ready(self, group: Group) -> None:
        self.session.say(WorkerSessionRequest(ready=WorkerReady(generation=group.generation)))
