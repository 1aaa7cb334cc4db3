"""What a worker trains, made of its job's spec and what the job brings; how a generation synchronises it."""

import torch

from peerloom.errors import PermissionDeniedError
from peerloom.kit.elastic_scripts import SCRIPT_TASK
from peerloom.kit.federated_rounds import is_federated
from peerloom.kit.parallel_plan import parse_plan
from peerloom.kit.robust_rules import OFF
from peerloom.kit.sync_auto import first_method
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_method import SyncMethod
from peerloom.v1.trainer_pb2 import Backend, ConfigureGeneration, JobSpec, WorkerPrepared
from peerloom.worker.agent_artifacts import fetch_artifact
from peerloom.worker.assignment import Assignment
from peerloom.worker.elastic.hosting import begin_script
from peerloom.worker.elastic.script_training import ScriptTraining
from peerloom.worker.federated.federated_training import FederatedTraining
from peerloom.worker.inputs import Inputs
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.stale.stale_training import StaleTraining
from peerloom.worker.step_chance import seed_all
from peerloom.worker.task import load_task
from peerloom.worker.training import Training


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
        if parse_plan("spec.plan", spec.plan).is_pipeline:
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
    return WorkerPrepared(
        training_samples=training.schedule.samples,
        epochs=spec.epochs,
        batch_size=spec.batch_size,
        learning_rate=spec.learning_rate,
        speed_gflops=training.speed_gflops if isinstance(training, PipelineTraining) else 0.0,
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


def method_of(config: ConfigureGeneration) -> SyncMethod:
    """How a generation synchronises its steps."""
    if config.sync:
        return parse_sync("sync", config.sync, config.spec.robust or OFF)
    return first_method(config.spec.sync, config.spec.robust or OFF)
