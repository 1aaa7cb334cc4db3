"""A generation of a pipeline: from its first step to the end of the job, or until it breaks."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from peerloom.v1.trainer_pb2 import EpochProgress, StepProgress
from peerloom.worker.evaluation import EVALUATION_BATCH
from peerloom.worker.group.process_group import Group
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.loop import Report, StepLimit
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.shadowing import Shadowing
from peerloom.worker.plan.shard_step import score_shards
from peerloom.worker.plan.stage_links import StageLinks, WorkerLinks
from peerloom.worker.plan.stage_passes import one_tensor
from peerloom.worker.plan.stage_step import Committed, make_step
from peerloom.worker.task import load_batch, sample_scores

SENT_AHEAD = 4  # parts of the test set that may wait for the next stage


@dataclass(frozen=True)
class Hooks:
    """What happens beside the steps, in all stages together.

    `report` hears of each step and epoch, `on_step` of each step. `keeps` says whether this stage wants a
    checkpoint after the next step, `departs` whether its node wants its slot back; `keep` writes one at a
    stage, at once if the group is left then.
    """

    report: Report
    on_step: Callable[[], None]
    keeps: Callable[[], bool]
    departs: Callable[[], bool]
    keep: Callable[[int, bool], None]


def train_stage(
    training: PipelineTraining,
    group: Group,
    links: WorkerLinks,
    hooks: Hooks,
    shadowing: Shadowing | None = None,
) -> None:
    """Trains until the job's last step and evaluation are done.

    Raises GenerationBrokenError when the group breaks, or all leave it at a step boundary.
    """
    state, schedule, limit = training.state, training.schedule, StepLimit()
    with group.failures():
        while True:
            group.check()
            if state.evaluated < state.step // schedule.steps_per_epoch:
                group.expect(math.inf)  # how long the others evaluate isn't known
                measured = evaluate_stage(training, links, group.check)
                if shadowing is not None:
                    shadowing.closed_epoch(measured.epoch, measured.metric)
                hooks.report(measured)
            elif state.step < schedule.total_steps:
                group.expect(limit.limit_s())
                began_s = time.perf_counter()
                done = _step(training, group, links, hooks, shadowing)
                limit.note(time.perf_counter() - began_s)
                is_last = state.step == schedule.total_steps
                if shadowing is not None and (is_last or done.leaves):
                    shadowing.settle()
                _keep_or_leave(training, done, hooks)
            else:
                return


def evaluate_stage(
    training: PipelineTraining, links: WorkerLinks, check: Callable[[], None] = lambda: None
) -> EpochProgress:
    """Measures an epoch that has just ended: the test set goes through all stages, the last one scores.

    The workers of a stage take turns at its parts.
    """
    training.stage_model.eval()
    scores = score_shards if training.plan.is_sharded else _scores
    total = scores(training, links, check)
    training.stage_model.train()
    rows = links.gather([total])
    check()
    score = sum(rows[rank][0] for rank in training.plan.losers())
    state, metric = training.state, score / max(1, len(training.test))
    state.close_epoch(state.evaluated + 1, metric)
    return EpochProgress(
        epoch=state.evaluated,
        metric_name=training.task.metric_name,
        metric=metric,
        loss=state.measured_loss_sum / training.schedule.samples,
        test_samples=len(training.test),
    )


@torch.no_grad()
def _scores(training: PipelineTraining, links: StageLinks, check: Callable[[], None]) -> float:
    task, test, total, ranks = training.task, training.test, 0.0, training.plan.ranks
    stage = ranks.stage_of(links.rank)
    is_first, is_last = ranks.is_first(stage), ranks.is_last(stage)
    for number, indices in enumerate(torch.split(torch.arange(len(test)), EVALUATION_BATCH)):
        check()
        if ranks.rank_of(stage, number) != links.rank:
            continue
        pair = load_batch(task, test, indices, training.device) if is_first or is_last else (None, None)
        entered = (
            pair[0]
            if is_first
            else links.receive(ranks.rank_before(stage, number)).tensor.to(training.device)
        )
        left = training.stage_model(entered)
        if is_last:
            total += float(sample_scores(task, left, pair[1]).double().sum())
        else:
            links.send(ranks.rank_after(stage, number), one_tensor(left, training))
            links.flush(SENT_AHEAD)
    links.flush()
    return total


def _step(
    training: PipelineTraining, group: Group, links: WorkerLinks, hooks: Hooks, shadowing: Shadowing | None
) -> Committed:
    began_s, sent_bytes, state = time.perf_counter(), links.traffic.bytes, training.state
    first, end = training.schedule.bounds(state.step)
    epoch = training.schedule.epoch_of(state.step)
    leaves = group.leaves_after(state.step + 1)
    wishes = {"keeps": hooks.keeps(), "leaves": leaves, "departs": hooks.departs()}
    done = make_step(training, links, group.check, **wishes, shadowing=shadowing)
    step_s, sent_bytes = time.perf_counter() - began_s, links.traffic.bytes - sent_bytes
    computed_s = min(done.computed_s, step_s)
    progress = StepProgress(
        step=state.step,
        total_steps=training.schedule.total_steps,
        epoch=epoch + 1,
        loss=done.loss,
        samples=end - first,
        samples_per_s=(end - first) / step_s,
        step_s=step_s,
        compute_s=computed_s,
        communication_s=step_s - computed_s,
        communicated_bytes=sent_bytes,
        first_sample=first,
        generation=group.generation,
        workers=group.world_size,
    )
    training.figures.add(progress)
    if done.own_samples:  # in a short batch there may be no turn for each worker
        training.figures.note_speed(computed_s / done.own_samples)
    hooks.report(progress)
    hooks.on_step()
    return done


def _keep_or_leave(training: PipelineTraining, done: Committed, hooks: Hooks) -> None:
    if training.state.step == training.schedule.total_steps:
        return  # what is left is to evaluate, and to write the model
    if done.keeps or done.leaves:
        hooks.keep(done.stays, done.leaves)
    if done.leaves:
        raise GenerationBrokenError("all stages left together, with a checkpoint of their last step")
