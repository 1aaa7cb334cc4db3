"""Clipping does what torch's does, and gives the same bits however the gradients lie in memory."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from peerloom.worker.updating.clipping import PART, clip_gradients, global_norm


def with_gradients(*gradients: torch.Tensor | None) -> list[torch.nn.Parameter]:
    parameters = []
    for gradient in gradients:
        parameter = torch.nn.Parameter(torch.zeros(()) if gradient is None else torch.zeros_like(gradient))
        parameter.grad = gradient
        parameters.append(parameter)
    return parameters


def test_a_norm_of_five_becomes_one_and_a_small_one_stays() -> None:
    """(3, 4) has the norm 5: by 1 / 5 it is (0.6, 0.8)."""
    parameters = with_gradients(torch.tensor([3.0]), None, torch.tensor([[4.0]]))
    assert clip_gradients(parameters, 5.1) == 5.0
    assert [float(p.grad) for p in parameters if p.grad is not None] == [3.0, 4.0]
    assert clip_gradients(parameters, 1.0) == 5.0
    assert [float(p.grad) for p in parameters if p.grad is not None] == pytest.approx([0.6, 0.8], abs=1e-6)
    assert clip_gradients(with_gradients(None), 1.0) == 0.0


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_comes_out_as_torchs_does(wrong: float) -> None:
    ours, theirs = (with_gradients(torch.tensor([1.0, wrong]), torch.tensor([2.0])) for _ in range(2))
    clip_gradients(ours, 1.0)
    torch.nn.utils.clip_grad_norm_(theirs, 1.0)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own.grad, other.grad, equal_nan=True)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.integers(0, 99), st.floats(0.01, 10.0))
def test_it_agrees_with_torch_to_rounding(sizes: list[int], seed: int, largest: float) -> None:
    torch.manual_seed(seed)
    gradients = [torch.randn(size) for size in sizes]
    ours, theirs = (with_gradients(*[each.clone() for each in gradients]) for _ in range(2))
    norm = clip_gradients(ours, largest)
    assert norm == pytest.approx(float(torch.nn.utils.clip_grad_norm_(theirs, largest)), rel=1e-5)
    torch.testing.assert_close([p.grad for p in ours], [p.grad for p in theirs])


def test_the_bits_do_not_depend_on_strides_places_or_order() -> None:
    """A sum in float32 would differ: the values span eight decimal places."""
    torch.manual_seed(1)
    first, second = torch.randn(33, 57) * torch.logspace(-4, 4, 57), torch.randn(101)
    shifted = torch.empty(33 * 57 + 1)[1:].view(33, 57).copy_(first)
    by_columns = first.t().contiguous().t()
    norms = {global_norm([each, second]) for each in (first, shifted, by_columns)} | {
        global_norm([second, first])
    }
    assert len(norms) == 1
    exact = math.fsum(value * value for value in [*first.flatten().tolist(), *second.tolist()])
    assert norms.pop() == pytest.approx(math.sqrt(exact), rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_asking_for_the_norm_changes_nothing(dtype: torch.dtype) -> None:
    """Of parts too: 3 * 2**18 + 1 ones have the norm of the root of their number."""
    ones = torch.ones(3 * PART + 1, dtype=dtype)
    assert global_norm([ones]) == math.sqrt(3 * PART + 1)
    assert bool((ones == 1).all())
