"""The passes of one worker of a pipeline: its stage's layers, over the micro-batches of its turns."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import itemgetter

import torch
from torch import Tensor

from peerloom.kit.plan_model.pipeline_order import PassKind, is_split
from peerloom.worker.batches import Nest, each_tensor
from peerloom.worker.plan.pipeline_training import PipelineTraining
from peerloom.worker.plan.split_backward import begin_backward
from peerloom.worker.plan.stage_links import StageLinks
from peerloom.worker.plan.stage_model import check_one_tensor
from peerloom.worker.step_chance import seed_of, seed_torch
from peerloom.worker.task import load_batch, sample_losses
from peerloom.worker.updating.precision import autocast, summable


@dataclass(frozen=True, eq=False)
class _Parts:
    """The micro-batches of a step: sizes, inputs in the first stage, targets in the last."""

    sizes: list[int]
    inputs: list[Nest]
    targets: list[Nest]


def compute_stage(
    training: PipelineTraining, links: StageLinks, sizes: list[int], check: Callable[[], None]
) -> float:
    """Makes this worker's passes; the sum of its samples' losses in the last stage, else 0.

    `sizes` are those of the batch's micro-batches. What it sends may still be on its way. Raises what
    `StageLinks.receive` and `check` do.
    """
    passes = _StagePasses(training, links, _parts(training, sizes))
    for one in training.plan.ranks.passes_of(training.plan.order, links.rank, len(sizes)):
        check()
        if one.kind is PassKind.FORWARD:
            passes.forward(one.micro_batch)
        elif one.kind is PassKind.BACKWARD:
            passes.backward(one.micro_batch)
        else:
            passes.weights(one.micro_batch)
    return passes.loss_sum()


class _StagePasses:
    """What is under way in a step."""

    def __init__(self, training: PipelineTraining, links: StageLinks, parts: _Parts) -> None:
        self._training, self._links, self._parts = training, links, parts
        self._ranks = training.plan.ranks
        self._stage = self._ranks.stage_of(links.rank)
        self._is_first, self._is_last = self._ranks.is_first(self._stage), self._ranks.is_last(self._stage)
        self._codec = training.plan.activations
        self._batch = sum(parts.sizes)
        self._under_way: dict[int, tuple[Tensor, Tensor]] = {}  # what came in and what went out
        self._weights: dict[int, Callable[[], None]] = {}  # what is left of backward passes
        self._losses: list[Tensor] = []
        self._is_split = is_split(training.plan.order)
        self._split_off = list(training.stage_model.parameters()) if self._is_split else []

    def loss_sum(self) -> float:
        return float(torch.stack(self._losses).double().sum()) if self._losses else 0.0

    def forward(self, number: int) -> None:
        entered = self._entering(number)
        left = self._through_layers(entered, number)
        if self._is_last:
            self._losses.append(left.detach())
        else:
            after = self._ranks.rank_after(self._stage, number)
            self._links.send(after, left, wants_gradient=left.requires_grad, codec=self._codec)
        self._under_way[number] = (entered, left)

    def backward(self, number: int) -> None:
        entered, left = self._under_way.pop(number)
        if self._is_last:
            self._go_back(number, entered, left, torch.full_like(left, 1 / self._batch))
        elif left.requires_grad:
            came = self._links.receive(self._ranks.rank_after(self._stage, number))
            self._go_back(number, entered, left, came.tensor.to(self._training.device))
        if not self._is_first and entered.requires_grad:
            # Of a tensor that the layers didn't use the gradient is nothing.
            gradient = torch.zeros_like(entered) if entered.grad is None else entered.grad
            before = self._ranks.rank_before(self._stage, number)
            self._links.send(before, gradient, codec=self._codec)

    def weights(self, number: int) -> None:
        if number in self._weights:
            self._weights.pop(number)()

    def _go_back(self, number: int, entered: Tensor, left: Tensor, gradient: Tensor) -> None:
        if self._is_split:
            self._weights[number] = begin_backward(left, gradient, entered, self._split_off)
        else:
            torch.autograd.backward([left], [gradient])

    def _entering(self, number: int) -> Tensor:
        if self._is_first:
            inputs: Tensor = self._parts.inputs[number]
            return inputs
        came = self._links.receive(self._ranks.rank_before(self._stage, number))
        entered = came.tensor.to(self._training.device)
        return entered.requires_grad_() if came.wants_gradient else entered

    def _through_layers(self, entered: Tensor, number: int) -> Tensor:
        training = self._training
        first = training.blueprint.bounds(training.stage)[0]

        def begin_layer(layer: int) -> None:
            # So that neither the cut nor who computes it changes what is drawn.
            part = seed_of(training.seed, training.state.step, number, first + layer)
            seed_torch(training.device, part)

        with autocast(training.task.autocast, training.device):
            left = training.stage_model(entered, begin_layer)
            if self._is_last:
                return summable(sample_losses(training.task, left, self._parts.targets[number])).sum()
        return one_tensor(left, training)


def _parts(training: PipelineTraining, sizes: list[int]) -> _Parts:
    # The first stage and the last load the same batch with the same chance, the others none.
    indices = training.batch_of(training.state.step)
    seed = seed_of(training.seed, training.state.step, 0)
    ranks = training.plan.ranks
    is_first, is_last = ranks.is_first(training.stage), ranks.is_last(training.stage)
    if not (is_first or is_last):
        return _Parts(sizes, [], [])
    seed_torch(training.device, seed)
    inputs, targets = load_batch(training.task, training.train, indices, training.device)
    entering = divided(inputs, sizes) if is_first else []
    return _Parts(sizes, entering, divided(targets, sizes) if is_last else [])


def one_tensor(left: Nest, training: PipelineTraining) -> Tensor:
    """What a stage hands on. Raises InvalidArgumentError when that is no single tensor."""
    layer = training.blueprint.layers[training.blueprint.bounds(training.stage)[1] - 1].name
    return check_one_tensor(left, f"layer {layer}, the last of stage {training.stage},", training.plan)


def divided(nest: Nest, sizes: list[int]) -> list[Nest]:
    """The samples of a nest in consecutive parts of these sizes."""
    edges = accumulate(sizes, initial=0)
    return [each_tensor(itemgetter(slice(*part)), nest) for part in pairwise(edges)]
