"""What a worker trains, made of its job's spec and what the job brings; how a generation synchronises it."""

import torch

from peerloom.errors import PermissionDeniedError
from peerloom.kit import tracing
from peerloom.kit.elastic_scripts import SCRIPT_TASK
from peerloom.kit.federated_rounds import is_federated
from peerloom.kit.parallel_plan import is_auto_plan, parse_plan
from peerloom.kit.robust_rules import OFF
from peerloom.kit.sync_auto import first_method
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_method import SyncMethod
from peerloom.v1.trainer_pb2 import Backend, ConfigureGeneration, JobSpec, WorkerPrepared
from peerloom.worker.agent_artifacts import fetch_artifact
from peerloom.worker.assignment import Assignment
from peerloom.worker.elastic.hosting import begin_script
from peerloom.worker.elastic.script_training import ScriptTraining
from peerloom.worker.failures import UnfitSlotError
from peerloom.worker.federated.federated_training import FederatedTraining
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.inputs import Inputs
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.task_survey import survey
from peerloom.worker.stale.stale_training import StaleTraining
from peerloom.worker.step_chance import seed_all
from peerloom.worker.task import load_task
from peerloom.worker.training import Training


class TaskBeginning:
    """What a worker has made of its job: a training, once it knows under which plan, and what to plan by."""

    spec: JobSpec  # of the training, with nothing left open

    def __init__(self, assignment: Assignment, device: torch.device) -> None:
        self.made: Training | PipelineTraining | None = None
        self._survey: WorkerPrepared | None = None
        self._inputs = Inputs(assignment)
        self._assignment = assignment
        self._device = device

    def told(self, spec: JobSpec) -> WorkerPrepared:
        """What the trainer hears, who has yet to choose a plan where it is "auto". Raises as `training`."""
        if not is_auto_plan(spec.plan):
            return prepared_of(self.training(spec), self.spec)
        if self._survey is None:
            self._check(spec)
            with tracing.span("survey", task=spec.task):
                task = load_task(spec.task, self._inputs.bring())
                self._survey = survey(task, fill_in(spec, task), self._device)
        return self._survey

    def training(self, spec: JobSpec) -> Training | PipelineTraining:
        """The training of a job's `spec`; at its beginning where there was none with this plan.

        Raises PermissionDeniedError for another job than it was started for, and what the task raises.
        """
        if self.made is None or self.spec.plan != spec.plan:
            self._check(spec)
            self.made = None  # two at once may be too large
            with tracing.span("prepare", task=spec.task):
                self.spec, self.made = begin_training(spec, self._inputs, self._assignment, self._device)
        return self.made

    def _check(self, spec: JobSpec) -> None:
        if why_not := self._assignment.work.why_not(spec):
            raise PermissionDeniedError(f"This worker does only what it was started for: {why_not}.")


def take_device(device: torch.device) -> None:
    """Makes this slot's GPU, if any, that of this thread. Raises UnfitSlotError where it can't be used."""
    if device.type != "cuda":
        return
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        raise UnfitSlotError("the GPU of its slot can't be used: torch there was built without CUDA")
    try:
        torch.cuda.set_device(device)
    except RuntimeError as error:
        said = str(error).splitlines()[0]
        raise UnfitSlotError(f"the GPU of its slot can't be used: {said}") from error


def begin_training(
    spec: JobSpec, inputs: Inputs, assignment: Assignment, device: torch.device
) -> tuple[JobSpec, Training | PipelineTraining]:
    """The spec with nothing left open, and a training at its beginning, with the job's first parameters."""
    arguments = inputs.bring()
    if spec.task == SCRIPT_TASK:
        seed_all(device, spec.seed)
        script = begin_script(arguments, inputs.code, device)
        spec = fill_in(spec, script)
        training: Training = ScriptTraining(script, spec, device)
    else:
        task = load_task(spec.task, arguments)
        spec = fill_in(spec, task)
        if parse_plan("spec.plan", spec.plan).is_divided:
            return spec, PipelineTraining(task, spec, device)
        training = _kind_of(spec)(task, spec, device)
    if spec.initial_model_digest:
        training.state.load_model(fetch_artifact(assignment, spec.initial_model_digest))
    return spec, training


def _kind_of(spec: JobSpec) -> type[Training]:
    if is_federated(spec.sync):
        return FederatedTraining
    return StaleTraining if first_method(spec.sync, spec.robust or OFF).stale is not None else Training


def prepared_of(training: Training | PipelineTraining, spec: JobSpec) -> WorkerPrepared:
    """What the trainer hears of a training that can begin."""
    divided = training if isinstance(training, PipelineTraining) else None
    return WorkerPrepared(
        training_samples=training.schedule.samples,
        epochs=spec.epochs,
        batch_size=spec.batch_size,
        learning_rate=spec.learning_rate,
        speed_gflops=divided.speed_gflops if divided else 0.0,
        free_bytes=divided.free_bytes if divided else 0,
        used_bytes=divided.used_bytes if divided else 0,
        bears_rounds=not isinstance(training, PipelineTraining) and training.bears_rounds,
    )


def fill_in(spec: JobSpec, task: object) -> JobSpec:
    """A copy of the spec in which what was left open has the task's own defaults."""
    filled = JobSpec()
    filled.CopyFrom(spec)
    for field in ("epochs", "batch_size", "learning_rate"):
        if not filled.HasField(field):
            setattr(filled, field, getattr(task, field))
    return filled


def refuse_plain(config: ConfigureGeneration) -> None:
    """For a worker whose node wants all by TLS: raises PermissionDeniedError where that can't be."""
    if config.backend == Backend.BACKEND_NCCL and config.world_size > 1:
        raise PermissionDeniedError(
            "NCCL sends gradients in the clear, and this node wants them sent by TLS: start the nodes of "
            "this job with --plain-collectives, on a network that you trust, or with --accelerator cpu.",
            reason="NCCL_IS_PLAIN",
        )


def check_first_step(step: int, config: ConfigureGeneration) -> None:
    """Raises GenerationBrokenError where all are said to have one state, and not the one after `step` steps.

    A trainer that was restarted while a former generation met doesn't know of a step which that made since.
    Of others' state only newcomers' is looked at by all; here each would go on counting from its own.
    """
    is_given = config.beside or config.newcomers or config.checkpoint_digest
    if not is_given and step != config.first_step:
        made = f"this worker has made {step} steps"
        raise GenerationBrokenError(f"{made}, and the generation begins after {config.first_step}")


def method_of(config: ConfigureGeneration) -> SyncMethod:
    """How a generation synchronises its steps."""
    if config.sync:
        return parse_sync("sync", config.sync, config.spec.robust or OFF)
    return first_method(config.spec.sync, config.spec.robust or OFF)
