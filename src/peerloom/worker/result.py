"""What a worker has to show for a finished job: the stored model, and what the training took."""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.utils.flop_counter import FlopCounterMode

from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import Artifact, ArtifactKind
from peerloom.v1.trainer_pb2 import ConfigureGeneration, JobSpec, WorkerFinished
from peerloom.worker.agent_artifacts import PATIENCE_S, store_artifact
from peerloom.worker.assignment import Assignment
from peerloom.worker.batches import call_model
from peerloom.worker.task import Samples, Task, load_batch
from peerloom.worker.training import Training

_log = get_logger()
PASSES = 3  # forward, and backward for the weights and for the inputs: as much each
_SAMPLES = 2


def result_of(
    training: Training, spec: JobSpec, assignment: Assignment, config: ConfigureGeneration
) -> WorkerFinished:
    """The training's figures; rank 0 stores the model with its agent. Raises what `store_artifact` raises."""
    finished = training.figures.finished()
    finished.generation = config.generation
    if config.rank == 0:
        finished.model.CopyFrom(_store_model(training, spec, assignment))
    finished.parameters_digest = training.state.parameters_digest()
    speed = training.figures.compute_s_per_sample
    finished.training_gflops = training_gflops(training.task, training.train, training.state.model, speed)
    return finished


def _store_model(training: Training, spec: JobSpec, assignment: Assignment) -> Artifact:
    with TemporaryDirectory(prefix="peerloom-") as folder:
        path = Path(folder) / "model.safetensors"
        origin = training.origin(spec.task, dict(spec.task_arguments))
        path.write_bytes(training.state.model_bytes(origin.to_metadata()))
        return store_model(assignment, spec, path)


def store_model(assignment: Assignment, spec: JobSpec, path: Path) -> Artifact:
    """Gives the model's file to the agent. Raises what `store_artifact` raises."""
    name = f"{spec.task.rpartition(':')[2].lower()}.safetensors"
    return store_artifact(assignment, path, ArtifactKind.ARTIFACT_KIND_MODEL, name, PATIENCE_S)


def training_gflops(task: Task, train: Samples, model: torch.nn.Module, compute_s_per_sample: float) -> float:
    """Operations of a training sample by the time it took, in 1e9 a second; 0 when it can't be told.

    Counted in one evaluation of two samples, which changes nothing of the model: products of matrices and
    convolutions, three passes.
    """
    if compute_s_per_sample <= 0:
        return 0.0
    try:
        device = next(model.parameters()).device
        inputs, _ = load_batch(task, train, torch.zeros(_SAMPLES, dtype=torch.long), device)
        model.eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            call_model(model, inputs)
    except Exception as error:  # the user's own code; a speed isn't worth the job's result
        _log.warning("speed_not_counted", reason=str(error))
        return 0.0
    finally:
        model.train()
    flops: int = counter.get_total_flops()
    return PASSES * flops / _SAMPLES / compute_s_per_sample / 1e9
