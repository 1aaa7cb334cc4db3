"""A batch's loss, or one for each optimiser: a scalar whose backward pass gives each its own gradient."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from peerloom.errors import InvalidArgumentError
from peerloom.worker.batches import form_of
from peerloom.worker.updating.precision import summable

Losses = Tensor | Mapping[Optimizer, Tensor]
MOST_OPTIMISERS = 32


@dataclass(frozen=True, eq=False)
class OfferedLoss:
    """A batch's loss with its graph, and which of the optimisers step by it, by their places."""

    loss: Tensor
    stepping: frozenset[int]


class _EachItsOwn(torch.autograd.Function):
    """The losses' sum; its backward pass gives each one's parameters its gradient, and the rest zeros."""

    @staticmethod
    def forward(
        ctx: Any, losses: Sequence[Tensor], parameters: Sequence[Sequence[Tensor]], *rest: Tensor
    ) -> Tensor:
        ctx.losses, ctx.parameters = losses, parameters
        ctx.rest = rest[sum(map(len, parameters)) :]
        return torch.stack([loss.detach() for loss in losses]).sum() if losses else rest[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        found: list[Tensor | None] = []
        for number, (loss, own) in enumerate(zip(ctx.losses, ctx.parameters, strict=True), 1):
            has_more = number < len(ctx.losses)  # which may have parts of the graph in common
            found += torch.autograd.grad(loss, own, upstream, retain_graph=has_more, allow_unused=True)
        ctx.losses = ()
        return (None, None, *found, *map(torch.zeros_like, ctx.rest))


def offered(losses: Losses, optimisers: Sequence[Optimizer]) -> OfferedLoss:
    """What `run.step` was given, checked. Raises InvalidArgumentError for what can't be differentiated."""
    if isinstance(losses, Tensor) or not isinstance(losses, Mapping):
        return OfferedLoss(_checked(losses), frozenset(range(len(optimisers))))
    chosen = [number for number, each in enumerate(optimisers) if each in losses]
    if not losses or len(chosen) < len(losses):
        found = ", ".join(type(each).__name__ for each in losses if each not in optimisers) or "nothing"
        limit = "a loss for each optimiser that steps, of those that run.prepare was given"
        raise InvalidArgumentError.of_field("run.step's mapping", found, limit)
    parts = [_checked(losses[optimisers[number]]) for number in chosen]
    parameters = [_trained_by(optimisers[number]) for number in chosen]
    rest = [each for n, other in enumerate(optimisers) if n not in chosen for each in _trained_by(other)]
    return OfferedLoss(_apart(parts, parameters, rest), frozenset(chosen))


def no_loss(model: nn.Module) -> Tensor:
    """0, whose backward pass gives each trained parameter a gradient of 0."""
    return _apart([], [], [each for each in model.parameters() if each.requires_grad])


def _apart(
    losses: Sequence[Tensor], parameters: Sequence[Sequence[Tensor]], rest: Sequence[Tensor]
) -> Tensor:
    flat = [each for own in parameters for each in own]
    together: Tensor = _EachItsOwn.apply(losses, parameters, *flat, *rest)  # type: ignore[no-untyped-call]  # torch's own is untyped
    return together


def _trained_by(optimiser: Optimizer) -> list[Tensor]:
    return [each for group in optimiser.param_groups for each in group["params"] if each.requires_grad]


def _checked(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.dim():
        limit = "a scalar tensor: the mean loss over the batch's samples, as loss.mean() gives"
        raise InvalidArgumentError.of_field("loss", form_of(loss), limit)
    if not loss.requires_grad:
        limit = "one that depends on the model's parameters: not detached, not under no_grad"
        raise InvalidArgumentError.of_field("loss", "without a gradient", limit)
    return summable(loss)
