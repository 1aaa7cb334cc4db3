"""One worker's part in a generation of a pipeline: its stage's state, the training, and its last word."""

from functools import partial
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
from peerloom.worker.plan.shadowing import Shadowing
from peerloom.worker.plan.stage_files import StageCheckpoints, write_model
from peerloom.worker.plan.stage_links import CHANGES, STATES, MeshLinks, StageLinks
from peerloom.worker.plan.stage_loop import Hooks, train_stage
from peerloom.worker.plan.state_transfer import take_over
from peerloom.worker.result import store_model
from peerloom.worker.trainer_session import TrainerSession


def enter_stage(
    training: PipelineTraining, config: ConfigureGeneration, spec: JobSpec, assignment: Assignment
) -> None:
    """Gives the worker its stage in a generation, with the state that it begins with.

    A state that another worker has comes when the group stands. Raises what `PipelineTraining.enter` raises,
    and NotFoundError when the agent lacks a file.
    """
    stage = training.plan.ranks.stage_of(config.rank)
    if config.state_sources:
        if config.state_sources[config.rank] == config.rank:
            training.stay(config.first_step)
        else:
            training.enter(stage, starts=list(config.stage_starts))  # its state comes with the group
        return
    digest = config.checkpoint_digest or spec.initial_model_digest
    enter = partial(training.enter, stage, list(config.stage_shares), list(config.stage_rooms))
    if not digest:
        enter()
        return
    with TemporaryDirectory(prefix="peerloom-") as folder:
        path = Path(folder) / "state.safetensors"
        fetch_file(assignment, digest, path)
        if config.checkpoint_digest:
            enter(checkpoint=path)
        else:
            enter(initial=path)


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

    Raises GenerationBrokenError when the group breaks. The next generation may go on without rank 0, so all
    tell then what the trainer hasn't heard yet of the steps that they made.
    """
    links, states = MeshLinks(group), MeshLinks(group, STATES)
    session.progress.forget_after(config.first_step, config.first_step // training.schedule.steps_per_epoch)
    if config.state_sources:
        with group.failures():
            take_over(training, states, config.state_sources, config.first_step)
        training.state.reopen_epoch(training.schedule.steps_per_epoch)
    _connect_piece(training, links, group)
    if config.shadow_holders or training.plan.ranks.is_wide:
        training.begin_past()
    shadowing = None
    if config.shadow_holders:
        with group.failures():
            ways = links, states, MeshLinks(group, CHANGES)
            shadowing = Shadowing(training, *ways, list(config.shadow_holders), group.node_ids)
        session.set_shadow(shadowing.told())
    ready = WorkerReady(generation=group.generation, stage=training.described(group.rank))
    session.set_position(training.state.step, group.generation)
    session.say(WorkerSessionRequest(ready=ready))
    session.progress.set_reporting(group.rank == 0)
    checkpoints = StageCheckpoints(assignment, links, checkpoint_interval_s, session.report_checkpoint)

    def on_step() -> None:
        session.set_position(training.state.step, group.generation)
        if shadowing is not None:
            session.set_shadow(shadowing.told())

    hooks = Hooks(
        session.progress.add,
        on_step,
        checkpoints.is_due,
        session.is_leaving,
        lambda writer, at_once: checkpoints.keep(training, writer, at_once=at_once),
    )
    try:
        train_stage(training, group, links, hooks, shadowing)
        finished = _finish(training, links, group, spec, assignment)
    except GenerationBrokenError:
        session.progress.tell_all()
        raise
    finally:
        session.set_shadow(None)
        if shadowing is not None:
            shadowing.close()
    finished.held.extend(training.held())
    session.say(WorkerSessionRequest(finished=finished))


def _connect_piece(training: PipelineTraining, links: MeshLinks, group: Group) -> None:
    if training.piece is not None:
        with group.failures():
            training.piece.connect(links)


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
    seconds = training.figures.compute_s_per_sample
    return training.sample_operations / seconds / 1e9 if seconds > 0 else 0.0
