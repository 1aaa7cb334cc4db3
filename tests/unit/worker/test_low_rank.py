"""PowerSGD by hand and by its promises: factors that round alike, sums that lack the last residuals alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_error_feedback import Memory, MemoryExchange
from test_summing_by_size import Model, in_memory
from torch import Tensor

from peerloom.kit.sync_grammar import parse_sync
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.low_rank import LowRankSumming, is_factored
from peerloom.worker.sync.low_rank_factors import first_directions, orthonormal, product
from peerloom.worker.sync.residuals import Residuals
from peerloom.worker.sync.summing import OwnerSumming

SIZES = ((48, 40), (48,), (20, 6, 10), (3, 3))  # the last matrix is too small to be factored


def test_a_basis_by_hand() -> None:
    """(3, 4, 0) has a length of 5; without its part along that (5, 0, 2) is (3.2, -2.4, 2), 4.4721 long."""
    [basis] = orthonormal([torch.tensor([[3.0, 5.0], [4.0, 0.0], [0.0, 2.0]])])
    expected = torch.tensor([[0.6, 0.71554], [0.8, -0.53666], [0.0, 0.44721]])
    torch.testing.assert_close(basis, expected, rtol=0, atol=1e-5)


def test_a_column_that_others_span_becomes_zero() -> None:
    twice = torch.tensor([[1.0, 2.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    [basis] = orthonormal([twice])
    assert basis[:, 1:].count_nonzero() == 0
    torch.testing.assert_close(basis[:, 0], torch.tensor([0.5**0.5, 0.5**0.5, 0.0]))


def test_what_is_not_finite_is_not_hidden_and_stays_in_its_matrix() -> None:
    wrong, right = torch.ones(4, 2), torch.eye(4)[:, :2]
    wrong[1, 0] = torch.nan
    first, second = orthonormal([wrong, right])
    assert bool(first.isnan().all())
    assert torch.equal(second, right)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 70), st.integers(1, 8), st.integers(0, 5), st.sampled_from([torch.float32, torch.float64])
)
def test_a_basis_is_orthonormal_and_the_same_alone_or_among_others(
    rows: int, columns: int, others: int, dtype: torch.dtype
) -> None:
    chance = torch.Generator().manual_seed(rows * columns)
    matrix = torch.randn(rows, columns, generator=chance, dtype=dtype)
    more = [torch.randn(rows + one, columns, generator=chance, dtype=dtype) for one in range(others)]
    basis = orthonormal([*more, matrix])[-1]
    assert torch.equal(basis, orthonormal([matrix])[0])
    kept = basis[:, basis.abs().amax(0) > 0]
    assert kept.shape[1] == min(rows, columns)
    identity = torch.eye(kept.shape[1], dtype=dtype)
    torch.testing.assert_close(kept.T @ kept, identity, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 4, 2), (300, 500, 3), (2, 100_000, 1)])
def test_a_product_is_the_sum_of_its_columns_products(shape: tuple[int, int, int]) -> None:
    rows, columns, rank = shape
    left, right = (
        first_directions(rows, rank, 1, torch.ones(1)),
        first_directions(columns, rank, 2, torch.ones(1)),
    )
    torch.testing.assert_close(product(left, right), left @ right.T, rtol=1e-5, atol=1e-5)


def test_which_gradients_are_factored() -> None:
    """48 x 40 at rank 4: 4 (48 + 40) values of 1,920 save 6,272 bytes. 8 x 8 at rank 1 saves 192."""
    method = parse_sync("sync", "codec=powersgd:4")
    assert is_factored(method, (48, 40), 4)
    assert is_factored(method, (48, 4, 10), 4), "a convolution's rows are its outputs"
    assert not is_factored(method, (100_000,), 4)
    assert not is_factored(method, (100_000, 4), 4), "a side is no longer than the rank"
    assert not is_factored(parse_sync("sync", "codec=powersgd:1"), (8, 8), 4)
    assert not is_factored(method, (0, 7), 4)
    small = parse_sync("sync", "codec=powersgd:4,codec_from=7681")
    assert not is_factored(small, (48, 40), 4), "it has 7,680 bytes"


def test_a_sum_that_is_of_the_rank_comes_whole() -> None:
    """Two ranks' gradients u v' and 2 u w': their sum u (v + 2 w)' has rank 1. No residual is left."""
    u, v, w = torch.randn(3, 48, generator=torch.Generator().manual_seed(3))
    v, w = v[:40], w[:40]
    models = [Model([(48, 40)]) for _ in range(2)]
    [came] = in_memory(models, "codec=powersgd:1", 0, [[torch.outer(u, v)], [2 * torch.outer(u, w)]])
    torch.testing.assert_close(came, torch.outer(u, v + 2 * w), rtol=1e-4, atol=1e-4)
    assert max(float(left.abs().max()) for model in models for left in model.left_out()) < 1e-4


def random_step(models: list[Model], text: str, step: int) -> tuple[list[Tensor], list[Tensor]]:
    """The sums of the gradients, and what came of them; the step counts."""
    chance = torch.Generator().manual_seed(step)
    own = [[torch.randn(size, generator=chance) for size in SIZES] for _ in models]
    came = in_memory(models, text, step, own)
    return [torch.stack(parts).sum(0) for parts in zip(*own, strict=True)], came


def missing(steps: list[tuple[list[Tensor], list[Tensor]]], number: int) -> Tensor:
    return sum((asked[number] - came[number] for asked, came in steps), start=torch.zeros(()))


@pytest.mark.parametrize("text", ["codec=powersgd:1", "topology=ps,codec=powersgd:4", "codec=powersgd:3"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_sums_of_all_steps_lack_the_last_residuals_and_nothing_else(text: str, ranks: int) -> None:
    models = [Model(SIZES) for _ in range(ranks)]
    steps = [random_step(models, text, step) for step in range(5)]
    for number in range(len(SIZES)):
        left_out = torch.stack([model.left_out()[number] for model in models]).sum(0)
        torch.testing.assert_close(missing(steps, number), left_out, rtol=1e-4, atol=2e-4)
        assert (float(left_out.abs().max()) > 0.1) == (number in (0, 2)), "matrices lose, others don't"


def test_ranks_that_begin_with_other_directions_get_the_same_bits() -> None:
    """One comes after two steps, another lost its state: all sums are alike, and so are directions after."""
    models = [Model(SIZES) for _ in range(3)]
    for step in range(2):
        random_step(models, "codec=powersgd:2", step)
    models[2] = Model(SIZES)
    models[1].residuals.begin(9)
    assert models[1].residuals.directions == {}
    assert models[0].residuals.directions
    asked, came = random_step(models, "codec=powersgd:2", 2)  # checks that all have the same
    left_out = sum((model.left_out()[0] for model in models), start=torch.zeros(()))
    assert float((asked[0] - came[0]).abs().max()) > 0.1
    assert bool(left_out.isfinite().all())
    by_model = [model.residuals.directions[model.parameters[0]] for model in models]
    assert all(torch.equal(one, by_model[0]) for one in by_model)


def test_a_step_that_broke_is_made_again_with_the_same_directions_and_residuals() -> None:
    models = [Model(SIZES) for _ in range(2)]
    random_step(models, "codec=powersgd:2", 0)
    own = [[torch.ones(size) for size in SIZES] for _ in models]
    broken = in_memory(models, "codec=powersgd:2", 1, own, commits=False)
    again = in_memory(models, "codec=powersgd:2", 1, own)
    assert all(torch.equal(one, other) for one, other in zip(broken, again, strict=True))


def test_directions_that_found_nothing_are_looked_for_elsewhere() -> None:
    """The first step's sum has rank 1, the later ones' rank 2: the second column comes back to life."""
    models = [Model([(48, 40)]) for _ in range(2)]
    one = torch.outer(torch.arange(48.0), torch.ones(40))
    other = torch.outer(torch.ones(48), torch.arange(40.0))
    in_memory(models, "codec=powersgd:2", 0, [[one], [one]])
    [directions] = models[0].residuals.directions.values()
    norms = directions.norm(dim=0)
    assert float(norms[1]) < 1e-3 * float(norms[0])
    for step in range(1, 4):
        [came] = in_memory(models, "codec=powersgd:2", step, [[one + other], [one - 3 * other]])
    torch.testing.assert_close(came, 2 * one - 2 * other, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_a_gradient_that_is_not_finite_reaches_all_and_is_forgotten_after_its_step(
    value: float, rank: int
) -> None:
    models = [Model(SIZES) for _ in range(2)]
    own = [[torch.ones(size) for size in SIZES] for _ in models]
    own[1][0][5, 5] = value
    came = in_memory(models, f"codec=powersgd:{rank}", 0, own)
    assert not bool(came[0].isfinite().any())
    assert bool(came[1].isfinite().all())
    assert models[0].parameters[0] not in models[0].residuals.directions
    _, came = random_step(models, f"codec=powersgd:{rank}", 1)
    assert all(bool(one.isfinite().all()) for one in came)


def test_matrices_of_two_types_are_summed_each_in_its_own() -> None:
    """Torch's DDP gives them to us in buckets of their own; their second factors travel together."""
    chance = torch.Generator().manual_seed(4)
    short, long = (torch.randn(48, 40, generator=chance, dtype=one) for one in (torch.float32, torch.float64))
    parameters = [torch.nn.Parameter(torch.zeros_like(one)) for one in (short, long)]
    residuals = Residuals()
    exchange = MemoryExchange(Memory(1), 0)
    method = parse_sync("sync", "topology=direct,codec=powersgd:2")
    plain = OwnerSumming(exchange, method.without_codec(), residuals)
    summing = LowRankSumming(plain, method, residuals, parameters)
    for step in range(2):
        residuals.begin(step)
        summing.begin_loss(torch.ones(()))
        for parameter, gradient in zip(parameters, (short, long), strict=True):
            bucket = gradient.flatten()
            summing.begin(bucket, Layout.packed([(parameter, parameter.size(), parameter.stride(), 0)]))
        summing.finish()
        residuals.commit()
    assert [residuals.directions[one].dtype for one in parameters] == [torch.float32, torch.float64]
