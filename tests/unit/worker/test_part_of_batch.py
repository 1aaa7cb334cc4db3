"""Steps by a part of a batch: as long as the batch's where an optimiser divides by its gradients' size."""

from collections.abc import Callable, Iterable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from peerloom.worker.updating.part_of_batch import as_by_whole_batch
from peerloom.worker.updating.updater import Updater

Optimisers = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
ADAPTIVE: list[Optimisers] = [
    partial(torch.optim.Adagrad, lr=0.01),
    partial(torch.optim.Adam, lr=0.01),
    partial(torch.optim.AdamW, lr=0.01),
    partial(torch.optim.Adamax, lr=0.01),
    partial(torch.optim.NAdam, lr=0.01),
    partial(torch.optim.RAdam, lr=0.01),
    partial(torch.optim.RMSprop, lr=0.01),
]
RANKS, BATCH, SIGNAL = 4, 32, 0.02


def stepped(optimiser: torch.optim.Optimizer, parameter: Tensor, gradient: Tensor, part: float) -> None:
    parameter.grad = gradient.clone()
    with as_by_whole_batch([optimiser], part):
        optimiser.step()


def test_adams_first_step_by_a_quarter_is_twice_as_long_and_remembers_a_quarter_of_the_square() -> None:
    """By hand: it moves by 0.1 / sqrt(1/4); of 6 squared a quarter is 9, of which Adam takes a 1,000th."""
    parameter = nn.Parameter(torch.tensor([1.0, 1.0]))
    optimiser = torch.optim.Adam([parameter], lr=0.1, eps=0.0)
    stepped(optimiser, parameter, torch.tensor([6.0, -0.5]), 1 / 4)
    assert parameter.tolist() == pytest.approx([0.8, 1.2])
    assert optimiser.state[parameter]["exp_avg_sq"][0] == pytest.approx(0.009)
    assert optimiser.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_decay_is_as_long_as_before(kind: Callable[..., torch.optim.Optimizer]) -> None:
    """AdamW's goes by rate times decay; Adam's comes with the gradient: half of 3 + 0.5 * 2 is 2."""
    parameter = nn.Parameter(torch.tensor([2.0]))
    optimiser = kind([parameter], lr=0.1, weight_decay=0.5, eps=0.0)
    stepped(optimiser, parameter, torch.tensor([3.0]), 1 / 4)
    if kind is torch.optim.AdamW:
        assert parameter.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5) - 0.2)
    else:
        assert parameter.item() == pytest.approx(1.8)
        assert optimiser.state[parameter]["exp_avg"].item() == pytest.approx(0.1 * 2)
    assert optimiser.param_groups[0]["weight_decay"] == 0.5


def test_sgd_steps_as_it_does_and_so_does_a_whole_batch() -> None:
    parameter = nn.Parameter(torch.tensor([1.0]))
    stepped(torch.optim.SGD([parameter], lr=0.1, weight_decay=0.1), parameter, torch.tensor([2.0]), 1 / 4)
    assert parameter.item() == pytest.approx(1 - 0.1 * 2.1)
    other = nn.Parameter(torch.tensor([1.0]))
    stepped(torch.optim.Adam([other], lr=0.1), other, torch.tensor([2.0]), 1.0)
    assert other.item() == pytest.approx(0.9)


def test_what_fails_leaves_rate_and_decay_as_they_were() -> None:
    parameter = nn.Parameter(torch.tensor([1.0]))
    optimiser = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.2)
    with pytest.raises(ZeroDivisionError), as_by_whole_batch([optimiser], 1 / 9):
        raise ZeroDivisionError
    assert [optimiser.param_groups[0][name] for name in ("lr", "weight_decay")] == [0.1, 0.2]


def way_of(make: Optimisers, ranks: int, steps: int, corrected: bool) -> tuple[float, float]:
    """How far the ranks' mean has gone against the gradient in the mean of 4,000 numbers, and its spread.

    Each sample's gradient has the same small part in it, and noise 50 times as large.
    """
    chance = torch.Generator().manual_seed(7)
    ways = []
    for _ in range(ranks):
        parameter = nn.Parameter(torch.zeros(4000))
        optimiser = make([parameter])
        for _ in range(steps):
            noise = torch.randn(4000, generator=chance) / (BATCH / ranks) ** 0.5
            stepped(optimiser, parameter, SIGNAL + noise, 1 / ranks if corrected else 1.0)
        ways.append(parameter.detach())
    mean = sum(ways) / ranks
    assert isinstance(mean, Tensor)
    return -float(mean.mean()), float(mean.std())


@pytest.mark.parametrize("make", ADAPTIVE)
def test_the_mean_of_ranks_goes_as_far_and_spreads_as_wide_as_the_whole_batch(make: Optimisers) -> None:
    """Without the correction the mean of four goes half as far."""
    far, wide = way_of(make, 1, 100, corrected=False)
    short, _ = way_of(make, RANKS, 100, corrected=False)
    assert way_of(make, RANKS, 100, corrected=True) == pytest.approx((far, wide), rel=0.1)
    assert short == pytest.approx(far / 2, rel=0.1)


def test_squares_of_whole_batches_go_on_as_those_of_parts() -> None:
    """As when rounds begin in mid-job: what Adam remembers of the squares stays as large as it was."""
    chance = torch.Generator().manual_seed(3)
    parameter = nn.Parameter(torch.zeros(4000))
    optimiser = torch.optim.Adam([parameter], lr=1e-3, betas=(0.9, 0.9))
    sizes = []
    for part in (1.0, 1 / 4):
        for _ in range(60):
            noise = torch.randn(4000, generator=chance) / (BATCH * part) ** 0.5
            stepped(optimiser, parameter, noise, part)
        sizes.append(float(optimiser.state[parameter]["exp_avg_sq"].mean()))
    assert sizes == pytest.approx([1 / BATCH, 1 / BATCH], rel=0.05)


def test_an_updater_takes_the_part_and_its_schedule_sees_the_rate_as_it_is() -> None:
    model = nn.Linear(1, 1, bias=False)
    before = model.weight.item()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1, eps=0.0)
    updater = Updater(model, [optimiser], [torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.5)])
    model.weight.grad = torch.tensor([[3.0]])
    updater.step(part=1 / 4)
    assert model.weight.item() == pytest.approx(before - 0.2)
    assert updater.learning_rate == pytest.approx(0.05)
