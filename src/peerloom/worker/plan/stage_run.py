"""One worker's part in a generation of a pipeline: its stage's state, the training, and its last word."""

from pathlib import Path
from tempfile import TemporaryDirectory

from peerloom.v1.trainer_pb2 import (
    ConfigureGeneration,
    JobSpec,
    WorkerFinished,
    WorkerReady,
    WorkerSessionRequest,
)
from peerloom.worker.agent_artifacts import fetch_file
from peerloom.worker.assignment import Assignment
from peerloom.worker.group.process_group import Group
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.stage_files import StageCheckpoints, write_model
from peerloom.worker.plan.stage_links import MeshLinks, StageLinks
from peerloom.worker.plan.stage_loop import Hooks, train_stage
from peerloom.worker.result import PASSES, store_model
from peerloom.worker.trainer_session import TrainerSession


def enter_stage(
    training: PipelineTraining, config: ConfigureGeneration, spec: JobSpec, assignment: Assignment
) -> None:
    """Gives the worker its stage in a generation, with the state that it begins with.

    Raises what `PipelineTraining.enter` raises, and NotFoundError when the agent lacks a file.
    """
    digest, shares = config.checkpoint_digest or spec.initial_model_digest, list(config.stage_shares)
    if not digest:
        training.enter(config.rank, shares)
        return
    with TemporaryDirectory(prefix="peerloom-") as folder:
        path = Path(folder) / "state.safetensors"
        fetch_file(assignment, digest, path)
        if config.checkpoint_digest:
            training.enter(config.rank, shares, checkpoint=path)
        else:
            training.enter(config.rank, shares, initial=path)


def run_stage(
    training: PipelineTraining,
    group: Group,
    config: ConfigureGeneration,
    spec: JobSpec,
    assignment: Assignment,
    session: TrainerSession,
    checkpoint_interval_s: float,
) -> None:
    """Trains this worker's stage in a group that stands, and tells of the model when the job is done.

    Raises GenerationBrokenError when the group breaks. The next generation makes the steps since its
    checkpoint again, so nothing is told any more of those of this one.
    """
    links = MeshLinks(group)
    ready = WorkerReady(generation=group.generation, stage=training.described())
    session.set_position(training.state.step, group.generation)
    session.say(WorkerSessionRequest(ready=ready))
    session.set_reporting(group.rank == 0)
    checkpoints = StageCheckpoints(assignment, links, checkpoint_interval_s, session.report_checkpoint)

    hooks = Hooks(
        session.report,
        lambda: session.set_position(training.state.step, group.generation),
        checkpoints.is_due,
        session.is_leaving,
        lambda writer, at_once: checkpoints.keep(training, writer, at_once=at_once),
    )
    try:
        train_stage(training, group, links, hooks)
        finished = _finish(training, links, group, spec, assignment)
    except GenerationBrokenError:
        session.forget(training.schedule.total_steps, training.schedule.epochs)
        raise
    session.say(WorkerSessionRequest(finished=finished))


def _finish(
    training: PipelineTraining, links: StageLinks, group: Group, spec: JobSpec, assignment: Assignment
) -> WorkerFinished:
    with TemporaryDirectory(prefix="peerloom-") as folder:
        path = Path(folder) / "model.safetensors"
        with group.failures():
            digest = write_model(training, links, spec, path)
        finished = training.figures.finished()
        if group.rank == 0:
            finished.model.CopyFrom(store_model(assignment, spec, path))
    finished.generation, finished.parameters_digest = group.generation, digest
    finished.training_gflops = _gflops(training)
    return finished


def _gflops(training: PipelineTraining) -> float:
    first, end = training.blueprint.bounds(training.stage)
    seconds = training.figures.compute_s_per_sample
    return PASSES * sum(training.blueprint.flops[first:end]) / seconds / 1e9 if seconds > 0 else 0.0
