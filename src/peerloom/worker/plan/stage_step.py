"""One step of a pipeline: each stage's forward and backward passes, and the commit of all or none."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from peerloom.kit.parallel_plan import micro_batch_sizes
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.shadowing import Shadowing
from peerloom.worker.plan.shard_step import compute_shards
from peerloom.worker.plan.stage_links import WorkerLinks
from peerloom.worker.plan.stage_passes import compute_stage
from peerloom.worker.plan.stage_shadow import CommittedStep
from peerloom.worker.plan.stage_sum import add_up, buffers_of, check_buffers
from peerloom.worker.task_checks import check_all_used


@dataclass(frozen=True)
class Committed:
    """A step that all stages made: the batch's mean loss, and what some stage asked all for.

    `stays` is the first rank whose node doesn't want its slot back; `computed_s` are the seconds that this
    worker computed, of `own_samples`.
    """

    loss: float
    keeps: bool
    leaves: bool
    stays: int
    computed_s: float
    own_samples: int


def make_step(
    training: PipelineTraining,
    links: WorkerLinks,
    check: Callable[[], None],
    *,
    keeps: bool = False,
    leaves: bool = False,
    departs: bool = False,
    shadowing: Shadowing | None = None,
) -> Committed:
    """Makes the job's next step with the other stages, and commits it.

    Each worker says at its end whether all shall write a checkpoint (`keeps`), or leave the group (`leaves`),
    and whether its own node wants its slot back (`departs`): all hear the same. With `shadowing` what the
    step changes goes to who keeps the stage's shadow. Raises what `StageLinks.receive` and `check` do;
    nothing is committed then.
    """
    state, began_s, waited_s = training.state, time.perf_counter(), links.traffic.exposed_s
    ranks = training.plan.ranks
    companions = ranks.of_stage(ranks.stage_of(links.rank))
    is_shared = training.plan.is_sharded or len(companions) > 1
    buffers = buffers_of(training.stage_model) if is_shared else {}
    sizes = _sizes(training)
    if shadowing is not None:
        shadowing.begin_step()
    if training.plan.is_sharded:
        loss_sum = compute_shards(training, links, sizes, check)
    else:
        loss_sum = compute_stage(training, links, sizes, check)
        links.flush()
    if is_shared:
        check_buffers(buffers, training.stage_model, str(training.plan))
    if len(companions) > 1:
        add_up(training.stage_model, links, companions)
    elsewhere: frozenset[str] = frozenset()
    if training.piece is not None:
        training.piece.agree()
        elsewhere = training.piece.counted_elsewhere
    check_all_used(training.task, training.stage_model)
    computed_s = time.perf_counter() - began_s - (links.traffic.exposed_s - waited_s)
    figures: list[float] = []
    if shadowing is not None:
        shadowing.before_commit()
        figures = shadowing.figures(time.perf_counter() - began_s)
    rows = links.gather([state.updater.squares(elsewhere), loss_sum, keeps, leaves, departs, *figures])
    check()
    # From here on this stage has made the step. One that dies before it has leaves the others ahead of it:
    # all go back to a step that they have together.
    loss_sum = math.fsum(rows[rank][1] for rank in training.plan.losers())
    squares = [rows[ranks.of_stage(stage)[0]][0] for stage in range(ranks.stages)]
    _update(training, squares, loss_sum, shadowing, [row[5:] for row in rows])
    return Committed(
        loss_sum / sum(sizes),
        any(row[2] for row in rows),
        any(row[3] for row in rows),
        next((rank for rank, row in enumerate(rows) if not row[4]), 0),
        computed_s,
        sum(size for number, size in enumerate(sizes) if training.plan.computes(links.rank, number)),
    )


def _update(
    training: PipelineTraining,
    squares: Sequence[float],
    loss_sum: float,
    shadowing: Shadowing | None,
    figures: Sequence[Sequence[float]],
) -> None:
    state, past = training.state, training.own_past
    if past is not None:
        past.note()
    norm = math.sqrt(math.fsum(squares))
    state.updater.step(norm)
    state.step += 1
    state.epoch_loss_sum += loss_sum
    if past is not None:
        past.settle()
    if shadowing is not None:
        shadowing.after_update(CommittedStep(state.step, norm, loss_sum), figures)


def _sizes(training: PipelineTraining) -> list[int]:
    """Of the next step's micro-batches."""
    samples, wanted = len(training.batch_of(training.state.step)), training.plan.micro_batches
    if training.task.micro_batch is not None:
        wanted = max(wanted, -(-samples // training.task.micro_batch))
    return micro_batch_sizes(samples, wanted, training.least_samples)
