"""One step of a pipeline: each stage's forward and backward passes, and the commit of all or none."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from peerloom.kit.parallel_plan import micro_batch_sizes
from peerloom.worker.batches import Nest, each_tensor
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.shadowing import Shadowing
from peerloom.worker.plan.shard_step import compute_shards
from peerloom.worker.plan.stage_links import StageLinks, WorkerLinks
from peerloom.worker.plan.stage_model import check_one_tensor
from peerloom.worker.plan.stage_shadow import CommittedStep
from peerloom.worker.plan.stage_sum import add_up, buffers_of, check_buffers
from peerloom.worker.step_chance import seed_of, seed_torch
from peerloom.worker.task import load_batch, sample_losses
from peerloom.worker.task_checks import check_all_used
from peerloom.worker.updating.precision import autocast, summable


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


@dataclass(frozen=True, eq=False)
class _Parts:
    """The micro-batches of a step: sizes, inputs in the first stage, targets in the last."""

    sizes: list[int]
    inputs: list[Nest]
    targets: list[Nest]


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
        loss_sum = _compute(training, links, _parts(training, links, sizes), check)
        links.flush()
    if is_shared:
        check_buffers(buffers, training.stage_model, str(training.plan))
    if len(companions) > 1:
        add_up(training.stage_model, links, companions)
    check_all_used(training.task, training.stage_model)
    computed_s = time.perf_counter() - began_s - (links.traffic.exposed_s - waited_s)
    figures: list[float] = []
    if shadowing is not None:
        shadowing.before_commit()
        figures = shadowing.figures(time.perf_counter() - began_s)
    rows = links.gather([state.updater.squares(), loss_sum, keeps, leaves, departs, *figures])
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


def _parts(training: PipelineTraining, links: StageLinks, sizes: list[int]) -> _Parts:
    # The first stage and the last load the same batch with the same chance, the others none.
    indices = training.batch_of(training.state.step)
    seed = seed_of(training.seed, training.state.step, 0)
    stage = training.plan.ranks.stage_of(links.rank)
    if stage not in (0, training.plan.stages - 1):
        return _Parts(sizes, [], [])
    seed_torch(training.device, seed)
    inputs, targets = load_batch(training.task, training.train, indices, training.device)
    if stage == 0:
        return _Parts(sizes, divided(inputs, sizes), [])
    return _Parts(sizes, [], divided(targets, sizes))


def _compute(
    training: PipelineTraining, links: StageLinks, parts: _Parts, check: Callable[[], None]
) -> float:
    """Makes this worker's passes; the sum of its samples' losses in the last stage, else 0."""
    ranks, batch = training.plan.ranks, sum(parts.sizes)
    stage, stages = ranks.stage_of(links.rank), ranks.stages
    under_way: dict[int, tuple[Tensor, Tensor]] = {}  # what came in and what went out, by micro-batch
    losses: list[Tensor] = []
    codec = training.plan.activations
    for one in ranks.passes_of(training.plan.order, links.rank, len(parts.sizes)):
        check()
        number = one.micro_batch
        if one.is_forward:
            entered = _entering(training, links, parts, number)
            left = _forward(training, parts, entered, number, is_last=stage == stages - 1)
            if stage == stages - 1:
                losses.append(left.detach())
            else:
                after = ranks.rank_of(stage + 1, number)
                links.send(after, left, wants_gradient=left.requires_grad, codec=codec)
            under_way[number] = (entered, left)
            continue
        entered, left = under_way.pop(number)
        if stage == stages - 1:
            (left / batch).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        elif left.requires_grad:
            gradient = links.receive(ranks.rank_of(stage + 1, number)).tensor.to(training.device)
            torch.autograd.backward([left], [gradient])
        if stage and entered.requires_grad:
            # Of a tensor that the layers didn't use the gradient is nothing.
            gradient = torch.zeros_like(entered) if entered.grad is None else entered.grad
            links.send(ranks.rank_of(stage - 1, number), gradient, codec=codec)
    return float(torch.stack(losses).double().sum()) if losses else 0.0


def _entering(training: PipelineTraining, links: StageLinks, parts: _Parts, number: int) -> Tensor:
    ranks = training.plan.ranks
    stage = ranks.stage_of(links.rank)
    if stage == 0:
        inputs: Tensor = parts.inputs[number]
        return inputs
    came = links.receive(ranks.rank_of(stage - 1, number))
    entered = came.tensor.to(training.device)
    return entered.requires_grad_() if came.wants_gradient else entered


def _forward(
    training: PipelineTraining, parts: _Parts, entered: Tensor, number: int, *, is_last: bool
) -> Tensor:
    first = training.blueprint.bounds(training.stage)[0]

    def begin_layer(layer: int) -> None:
        # So that neither the cut nor who computes it changes what is drawn.
        part = seed_of(training.seed, training.state.step, number, first + layer)
        seed_torch(training.device, part)

    with autocast(training.task.autocast, training.device):
        left = training.stage_model(entered, begin_layer)
        if is_last:
            losses = sample_losses(training.task, left, parts.targets[number])
            return summable(losses).sum()
    return one_tensor(left, training)


def one_tensor(left: Nest, training: PipelineTraining) -> Tensor:
    """What a stage hands on. Raises InvalidArgumentError when that is no single tensor."""
    layer = training.blueprint.layers[training.blueprint.bounds(training.stage)[1] - 1].name
    return check_one_tensor(left, f"layer {layer}, the last of stage {training.stage},", training.plan)


def divided(nest: Nest, sizes: list[int]) -> list[Nest]:
    """The samples of a nest in consecutive parts of these sizes."""
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [
        each_tensor(lambda tensor, end=end, size=size: tensor[end - size : end], nest)  # type: ignore[misc]
        for end, size in zip(ends, sizes, strict=True)
    ]
