"""One step of a pipeline: each stage's forward and backward passes, and the commit of all or none."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from peerloom.errors import InvalidArgumentError
from peerloom.kit.parallel_plan import micro_batch_sizes
from peerloom.kit.plan_model.pipeline_order import passes_of
from peerloom.worker.batches import Nest, each_tensor, form_of
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.shadowing import Shadowing
from peerloom.worker.plan.stage_links import StageLinks
from peerloom.worker.plan.stage_shadow import CommittedStep
from peerloom.worker.step_chance import seed_of, seed_torch
from peerloom.worker.task import load_batch, sample_losses
from peerloom.worker.task_checks import check_all_used
from peerloom.worker.training_state import TrainingState
from peerloom.worker.updating.precision import autocast, summable


@dataclass(frozen=True)
class Committed:
    """A step that all stages made: the batch's mean loss, and what some stage asked all for.

    `stays` is the first stage whose node doesn't want its slot back; `computed_s` are the seconds that this
    stage computed.
    """

    loss: float
    keeps: bool
    leaves: bool
    stays: int
    computed_s: float


@dataclass(frozen=True, eq=False)
class _Parts:
    """The micro-batches of a step: sizes, inputs in the first stage, targets in the last."""

    sizes: list[int]
    inputs: list[Nest]
    targets: list[Nest]


def make_step(
    training: PipelineTraining,
    links: StageLinks,
    check: Callable[[], None],
    *,
    keeps: bool = False,
    leaves: bool = False,
    departs: bool = False,
    shadowing: Shadowing | None = None,
) -> Committed:
    """Makes the job's next step with the other stages, and commits it.

    Each stage says at its end whether all shall write a checkpoint (`keeps`), or leave the group (`leaves`),
    and whether its own node wants its slot back (`departs`): all hear the same. With `shadowing` what the
    step changes goes to who keeps the stage's shadow. Raises what `StageLinks.receive` and `check` do;
    nothing is committed then.
    """
    state, began_s, waited_s = training.state, time.perf_counter(), links.traffic.exposed_s
    seed = seed_of(training.seed, state.step, 0)
    parts = _parts(training, links, seed)
    if shadowing is not None:
        shadowing.begin_step()
    seed_torch(training.device, seed_of(training.seed, state.step, links.stage))
    loss_sum = _compute(training, links, parts, check)
    links.flush()
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
    loss = rows[-1][1] / sum(parts.sizes)
    _update(state, [row[0] for row in rows], rows[-1][1], shadowing, [row[5:] for row in rows])
    stays = next((stage for stage, row in enumerate(rows) if not row[4]), 0)
    return Committed(loss, any(row[2] for row in rows), any(row[3] for row in rows), stays, computed_s)


def _update(
    state: TrainingState,
    squares: Sequence[float],
    loss_sum: float,
    shadowing: Shadowing | None,
    figures: Sequence[Sequence[float]],
) -> None:
    if shadowing is not None:
        shadowing.before_update()
    norm = math.sqrt(math.fsum(squares))
    state.updater.step(norm)
    state.step += 1
    state.epoch_loss_sum += loss_sum
    if shadowing is not None:
        shadowing.after_update(CommittedStep(state.step, norm, loss_sum), figures)


def _parts(training: PipelineTraining, links: StageLinks, seed: int) -> _Parts:
    # The first stage and the last load the same batch with the same chance, the others none.
    indices = training.batch_of(training.state.step)
    wanted = training.plan.micro_batches
    if training.task.micro_batch is not None:
        wanted = max(wanted, -(-len(indices) // training.task.micro_batch))
    sizes = micro_batch_sizes(len(indices), wanted, training.least_samples)
    if links.stage not in (0, links.stages - 1):
        return _Parts(sizes, [], [])
    seed_torch(training.device, seed)
    inputs, targets = load_batch(training.task, training.train, indices, training.device)
    if links.stage == 0:
        return _Parts(sizes, divided(inputs, sizes), [])
    return _Parts(sizes, [], divided(targets, sizes))


def _compute(
    training: PipelineTraining, links: StageLinks, parts: _Parts, check: Callable[[], None]
) -> float:
    """Makes all passes; the sum of the samples' losses in the last stage, else 0."""
    stage, stages, batch = links.stage, links.stages, sum(parts.sizes)
    under_way: dict[int, tuple[Tensor, Tensor]] = {}  # what came in and what went out, by micro-batch
    losses: list[Tensor] = []
    codec = training.plan.activations
    for one in passes_of(training.plan.order, stage, stages, len(parts.sizes)):
        check()
        if one.is_forward:
            entered = _entering(training, links, parts, one.micro_batch)
            left = _forward(training, parts, entered, one.micro_batch, is_last=stage == stages - 1)
            if stage == stages - 1:
                losses.append(left.detach())
            else:
                links.send(stage + 1, left, wants_gradient=left.requires_grad, codec=codec)
            under_way[one.micro_batch] = (entered, left)
            continue
        entered, left = under_way.pop(one.micro_batch)
        if stage == stages - 1:
            (left / batch).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        elif left.requires_grad:
            gradient = links.receive(stage + 1).tensor.to(training.device)
            torch.autograd.backward([left], [gradient])
        if stage and entered.requires_grad:
            # Of a tensor that the layers didn't use the gradient is nothing.
            gradient = torch.zeros_like(entered) if entered.grad is None else entered.grad
            links.send(stage - 1, gradient, codec=codec)
    return float(torch.stack(losses).double().sum()) if losses else 0.0


def _entering(training: PipelineTraining, links: StageLinks, parts: _Parts, number: int) -> Tensor:
    if links.stage == 0:
        inputs: Tensor = parts.inputs[number]
        return inputs
    came = links.receive(links.stage - 1)
    entered = came.tensor.to(training.device)
    return entered.requires_grad_() if came.wants_gradient else entered


def _forward(
    training: PipelineTraining, parts: _Parts, entered: Tensor, number: int, *, is_last: bool
) -> Tensor:
    with autocast(training.task.autocast, training.device):
        left = training.stage_model(entered)
        if is_last:
            losses = sample_losses(training.task, left, parts.targets[number])
            return summable(losses).sum()
    return one_tensor(left, training)


def one_tensor(left: Nest, training: PipelineTraining) -> Tensor:
    """What a stage hands on. Raises InvalidArgumentError when that is no single tensor."""
    if not isinstance(left, Tensor):
        layer = training.blueprint.layers[training.blueprint.bounds(training.stage)[1] - 1].name
        limit = f"another one: layer {layer}, the last of stage {training.stage}, gives {form_of(left)}"
        raise InvalidArgumentError.of_field("plan", str(training.plan), f"{limit}, not a single tensor")
    return left


def divided(nest: Nest, sizes: list[int]) -> list[Nest]:
    """The samples of a nest in consecutive parts of these sizes."""
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [
        each_tensor(lambda tensor, end=end, size=size: tensor[end - size : end], nest)  # type: ignore[misc]
        for end, size in zip(ends, sizes, strict=True)
    ]
