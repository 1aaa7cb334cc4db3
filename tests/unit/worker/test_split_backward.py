"""Aim: a backward pass in two parts gives the bits of one in one piece, and makes nothing twice."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from peerloom.worker.plan.split_backward import begin_backward


class Shared(nn.Module):
    """A layer that is used twice, and one of its weights a third time; a branch around others."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.norm(self.linear(inputs).tanh()) + inputs
        hidden = hidden + self.attention(hidden, hidden, hidden)[0]
        output: Tensor = self.linear(hidden) * self.linear.weight.sum()
        return output


class Beside(nn.Module):
    """Half of what comes out has nothing to do with what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.other = nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(8))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([inputs * self.weight, (self.other * 2).expand_as(inputs)])


class Unused(nn.Module):
    """What came in plays no part."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.weight * 3


class Checkpointed(nn.Module):
    """Torch can't compute a part of the gradients of what it computes anew."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        output: Tensor = self.second(checkpoint(self.second, hidden.tanh(), use_reentrant=True))
        return output


MODELS: dict[str, Callable[[], nn.Module]] = {
    "shared": Shared,
    "beside": Beside,
    "unused": Unused,
    "convolution": lambda: nn.Sequential(nn.Conv1d(5, 4, 3), nn.BatchNorm1d(4), nn.GELU()),
    "transformer": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
    "frozen": lambda: nn.Sequential(nn.Linear(8, 8).requires_grad_(False), nn.ReLU(), nn.Linear(8, 3)),
    "no weights": nn.Tanh,
    "checkpoint": Checkpointed,
}


def gradients(model: nn.Module, is_split: bool) -> list[Tensor | None]:
    """Of what came in, and of the weights after two passes."""
    model.zero_grad()
    found: list[Tensor | None] = []
    for number in range(2):
        torch.manual_seed(number)
        entered = torch.randn(4, 5, 8, requires_grad=True)
        left = model(entered)
        gradient = torch.randn(left.shape)
        if is_split:
            add_up = begin_backward(left, gradient, entered, model.parameters())
            del left
            add_up()
        else:
            left.backward(gradient)
        found.append(entered.grad)
    return found + [None if one.grad is None else one.grad.clone() for one in model.parameters()]


@pytest.mark.parametrize("name", MODELS)
def test_gradients_have_the_bits_of_a_whole_pass(name: str) -> None:
    torch.manual_seed(1)
    model = MODELS[name]()
    whole, split = gradients(model, is_split=False), gradients(model, is_split=True)
    assert len(whole) == len(split)
    for one, other in zip(whole, split, strict=True):
        assert (one is None) == (other is None)
        assert one is None or other is None or torch.equal(one, other)


class Counted(torch.autograd.Function):
    """Passes numbers on, and notes each time that gradients come through."""

    @staticmethod
    def forward(context: Any, tensor: Tensor, noted: list[str], name: str) -> Tensor:
        context.note = lambda: noted.append(name)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        context.note()
        return gradients[0], None, None


def test_weights_wait_and_what_goes_back_is_computed_once() -> None:
    noted: list[str] = []
    weights = [nn.Parameter(torch.eye(8)) for _ in range(3)]
    entered = torch.randn(2, 8, requires_grad=True)
    hidden: Tensor = entered
    for number, weight in enumerate(weights):
        hidden = Counted.apply(hidden @ Counted.apply(weight, noted, f"W{number}"), noted, f"B{number}")  # type: ignore[no-untyped-call]  # torch's own
    add_up = begin_backward(hidden, torch.ones(2, 8), entered, weights)
    assert noted == ["B2", "B1", "B0"]
    assert [weight.grad for weight in weights] == [None] * 3
    add_up()
    assert sorted(noted[3:]) == ["W0", "W1", "W2"]
    assert all(weight.grad is not None for weight in weights)
