"""The passes of one worker of a model in shards: all layers, of its own part of the batch.

Each unit is gone through with all of this worker's micro-batches before the next one, so that its values
travel twice a step and worker: for the forward passes, and for the backward ones.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from peerloom.worker.batches import Nest
from peerloom.worker.evaluation import EVALUATION_BATCH
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.shard_stream import ShardStream
from peerloom.worker.plan.stage_links import WorkerLinks
from peerloom.worker.plan.stage_model import check_one_tensor
from peerloom.worker.step_chance import seed_of, seed_torch
from peerloom.worker.task import load_batch, sample_losses, sample_scores
from peerloom.worker.updating.precision import autocast, summable

_Passes = dict[int, tuple[Tensor, Tensor]]  # by micro-batch: what went into a unit, and what came out


def compute_shards(
    training: PipelineTraining, links: WorkerLinks, sizes: list[int], check: Callable[[], None]
) -> float:
    """Makes this worker's passes; own parameters have the gradients of all then. The sum of its losses.

    `sizes` are those of the batch's micro-batches. Raises what `WorkerLinks.result` and `check` do.
    """
    units = len(training.shards.units)
    visits = [*range(units), *reversed(range(units - 1))]
    with ShardStream(training.shards, links, visits) as stream:
        passes = _forward_passes(training, stream, _loaded(training, links.rank, sizes), check)
        losses = [left.detach() for _, left in passes[-1].values()]
        _backward_passes(stream, passes, 1 / sum(sizes), check)
        stream.finish()
    return float(torch.stack(losses).double().sum()) if losses else 0.0


def _forward_passes(
    training: PipelineTraining,
    stream: ShardStream,
    loaded: Mapping[int, tuple[Tensor, Nest]],
    check: Callable[[], None],
) -> list[_Passes]:
    """The passes by unit; what comes out of the last one are losses, and its values are still there."""
    last = len(training.shards.units) - 1
    entering = {number: inputs for number, (inputs, _) in loaded.items()}
    passes: list[_Passes] = []
    while len(passes) <= last:
        check()
        unit = stream.visit()
        targets = {number: targets if unit == last else None for number, (_, targets) in loaded.items()}
        passes.append(
            {
                number: _forward(training, unit, came, number, targets[number])
                for number, came in entering.items()
            }
        )
        entering = {number: left.detach() for number, (_, left) in passes[-1].items()}
        if unit < last:
            stream.release(unit)
    return passes


def _backward_passes(
    stream: ShardStream, passes: list[_Passes], loss_weight: float, check: Callable[[], None]
) -> None:
    """Uses up the passes, from the last unit to the first one."""
    unit = len(passes) - 1
    gradients: dict[int, Tensor | None] = {
        number: torch.full_like(left, loss_weight) for number, (_, left) in passes[-1].items()
    }
    while passes:
        check()
        made = passes.pop()
        gradients = {number: _backward(*one, gradients[number]) for number, one in made.items()}
        stream.give_gradients(unit)
        stream.release(unit)
        unit = stream.visit() if passes else unit


@torch.no_grad()
def score_shards(training: PipelineTraining, links: WorkerLinks, check: Callable[[], None]) -> float:
    """The sum of the scores of this worker's parts of the test set, which all go through in rounds."""
    task, model, total = training.task, training.stage_model, 0.0
    parts = torch.split(torch.arange(len(training.test)), EVALUATION_BATCH)
    rounds = [parts[first : first + links.workers] for first in range(0, len(parts), links.workers)]
    units = training.shards.units
    with ShardStream(training.shards, links, [*range(len(units))] * len(rounds)) as stream:
        for together in rounds:
            check()
            entered, targets = None, None
            if links.rank < len(together):
                entered, targets = load_batch(task, training.test, together[links.rank], training.device)
            for unit in units:
                number = stream.visit()
                if entered is not None:
                    entered = model.run(entered, unit.first, unit.end)
                stream.release(number)
            if entered is not None:
                total += float(sample_scores(task, entered, targets).double().sum())
        stream.finish()
    return total


def _loaded(training: PipelineTraining, rank: int, sizes: list[int]) -> dict[int, tuple[Tensor, Nest]]:
    """Inputs and targets of a rank's micro-batches, each drawn with a chance of its own."""
    indices, loaded = torch.split(training.batch_of(training.state.step), sizes), {}
    for number, part in enumerate(indices):
        if training.plan.computes(rank, number):
            seed_torch(training.device, seed_of(training.seed, training.state.step, number))
            loaded[number] = load_batch(training.task, training.train, part, training.device)
    return loaded


def _forward(
    training: PipelineTraining, unit: int, came: Tensor, number: int, targets: Nest
) -> tuple[Tensor, Tensor]:
    """What goes into a unit, and what comes out; of the last one, with `targets`, the sum of the losses."""
    first, end = training.shards.units[unit].first, training.shards.units[unit].end
    entered = came.requires_grad_() if unit and came.is_floating_point() else came

    def begin_layer(layer: int) -> None:
        # As in a pipeline: neither the cut nor who computes it changes what is drawn.
        seed_torch(training.device, seed_of(training.seed, training.state.step, number, layer))

    with autocast(training.task.autocast, training.device):
        left = training.stage_model.run(entered, first, end, begin_layer)
        if targets is not None:
            return entered, summable(sample_losses(training.task, left, targets)).sum()
    return entered, check_one_tensor(left, f"layer {training.blueprint.layers[end - 1].name}", training.plan)


def _backward(entered: Tensor, left: Tensor, gradient: Tensor | None) -> Tensor | None:
    """The gradient of what went in, None where nothing before it needs one."""
    if left.requires_grad and gradient is not None:
        torch.autograd.backward([left], [gradient.to(left.dtype)])
    return entered.grad if entered.requires_grad else None
