"""A rank's gradient computed again, to be compared with what came."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.func import functional_call

from peerloom.kit.audit_rules import relative_difference
from peerloom.worker.batches import Nest, call_model
from peerloom.worker.sync.bucket_layout import Gradients


def gradients_of(
    model: torch.nn.Module,
    buffers: Mapping[str, torch.Tensor],
    loss_of: Callable[[Callable[[Nest], Nest]], torch.Tensor],
) -> Gradients:
    """The gradients of `loss_of(forward)` by all parameters that learn; the model is left as it is.

    The forward pass begins with copies of `buffers`, which it may change.
    """
    parameters = dict(model.named_parameters())
    copies = {name: value.detach().requires_grad_(value.requires_grad) for name, value in parameters.items()}
    state = {**copies, **{name: value.clone() for name, value in buffers.items()}}

    def called(*inputs: Nest, **named: Nest) -> Nest:
        return functional_call(model, state, inputs, named)

    def forward(inputs: Nest) -> Nest:
        return call_model(called, inputs)

    learning = {name: value for name, value in copies.items() if value.requires_grad}
    found = torch.autograd.grad(loss_of(forward), list(learning.values()), allow_unused=True)
    return {
        parameters[name]: torch.zeros_like(value) if gradient is None else gradient
        for (name, value), gradient in zip(learning.items(), found, strict=True)
    }


def norm_of(parts: Sequence[torch.Tensor]) -> float:
    """The length of a vector that comes in parts."""
    return float(torch.stack([torch.linalg.vector_norm(part.double()) for part in parts]).norm())


def difference(said: Sequence[torch.Tensor], computed: Sequence[torch.Tensor], largest: float) -> float:
    """How far apart two such vectors are, as a part of the second; `largest` as in `relative_difference`."""
    apart = [one.double() - other.double() for one, other in zip(said, computed, strict=True)]
    return relative_difference(norm_of(apart), norm_of(computed), largest)
