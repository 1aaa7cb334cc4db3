"""Several models, optimisers and losses in one loop: alone it is plain torch, bit for bit."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import lr_scheduler
from torch.utils.data import TensorDataset

import peerloom
from peerloom.errors import InvalidArgumentError, PeerloomError
from peerloom.worker.elastic.elastic_run import ElasticRun
from peerloom.worker.schedule import Schedule

COUNT, BATCH, EPOCHS = 40, 16, 3
POINTS = torch.randn(COUNT, 2, generator=torch.Generator().manual_seed(4))
NOISE = torch.randn(COUNT, 3, generator=torch.Generator().manual_seed(6))
REAL = torch.ones(BATCH, 1)


class Game:
    """A generator and a discriminator, each with its optimiser, and a schedule for the second."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.maker = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
        self.judge = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
        self.by_maker = torch.optim.Adam(self.maker.parameters(), lr=0.02)
        self.by_judge = torch.optim.SGD(self.judge.parameters(), lr=0.1, momentum=0.9)
        self.schedule = lr_scheduler.ExponentialLR(self.by_judge, 0.9)

    @property
    def parts(self) -> list[Any]:
        return [self.maker, self.judge, self.by_maker, self.by_judge, self.schedule]

    def losses(self, real: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        made = self.maker(noise)
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        judged = functional.binary_cross_entropy_with_logits
        of_judge = judged(self.judge(real), ones) + judged(self.judge(made.detach()), zeros)
        return judged(self.judge(made), ones), of_judge

    def parameters(self) -> list[Tensor]:
        return [each.detach() for model in (self.maker, self.judge) for each in model.parameters()]


def played(each: int = 1, **settings: Any) -> Game:
    """By a loop; the generator steps with every `each`th batch."""
    game = Game()
    with peerloom.elastic(seed=9, **settings) as run:
        run.prepare(*game.parts)
        for real, noise in run.batches(TensorDataset(POINTS, NOISE), batch_size=BATCH, epochs=EPOCHS):
            of_maker, of_judge = game.losses(real, noise)
            losses: dict[torch.optim.Optimizer, Tensor] = {game.by_judge: of_judge}
            if run.steps % each == 0:
                losses[game.by_maker] = of_maker
            run.step(losses)
    assert run.steps == 9
    return game


def plainly_played(each: int = 1) -> Game:
    game, schedule = Game(), Schedule(COUNT, BATCH, EPOCHS, seed=9)
    for step in range(schedule.total_steps):
        first, end = schedule.bounds(step)
        chosen = schedule.order(schedule.epoch_of(step))[first:end]
        of_maker, of_judge = game.losses(POINTS[chosen], NOISE[chosen])
        of_maker.backward(inputs=list(game.maker.parameters()), retain_graph=True)
        of_judge.backward(inputs=list(game.judge.parameters()))
        if step % each == 0:
            game.by_maker.step()
        game.by_judge.step()
        game.schedule.step()
        game.maker.zero_grad()
        game.judge.zero_grad()
    return game


@pytest.mark.parametrize("each", [1, 2])
def test_a_game_of_two_alone_is_plain_torch_bit_for_bit(each: int) -> None:
    expected = plainly_played(each).parameters()
    torch.testing.assert_close(played(each).parameters(), expected, rtol=0, atol=0)


def test_pieces_of_a_game_add_up_and_half_precision_trains_it() -> None:
    expected = plainly_played().parameters()
    torch.testing.assert_close(played(micro_batch=8).parameters(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(played(autocast="fp16").parameters(), expected, rtol=0.3, atol=0.1)


def test_several_optimisers_may_step_by_one_loss_and_a_metric_moves_a_schedule() -> None:
    """The score never improves, so the rate is halved at the ends of the second and the third epoch."""
    game = Game()
    plateau = lr_scheduler.ReduceLROnPlateau(game.by_maker, mode="max", factor=0.5, patience=0)
    rates = []
    with peerloom.elastic() as run:
        returned = run.prepare(*game.parts[:-1], plateau)
        run.evaluate(lambda batch: torch.ones(len(batch[0])), TensorDataset(POINTS), name="score")
        for real, noise in run.batches(TensorDataset(POINTS, NOISE), batch_size=20, epochs=4):
            of_maker, of_judge = game.losses(real, noise)
            run.step(of_maker + of_judge)
            rates.append(game.by_maker.param_groups[0]["lr"])
    assert list(returned) == [*game.parts[:-1], plateau]
    assert rates == [0.02] * 4 + [0.01] * 2 + [0.005] * 2


def test_one_of_several_models_is_saved_alone(tmp_path: Any) -> None:
    from safetensors.torch import load_file

    game = Game()
    with peerloom.elastic() as run:
        run.prepare(*game.parts)
        run.save(tmp_path / "maker.safetensors", game.maker)
        run.save(tmp_path / "all.safetensors")
    stored = load_file(tmp_path / "maker.safetensors")
    torch.testing.assert_close(stored, dict(game.maker.state_dict()), rtol=0, atol=0)
    both = nn.ModuleList([Game().maker, Game().judge])
    both.load_state_dict(load_file(tmp_path / "all.safetensors"))


def stepping(run: ElasticRun, losses: Callable[[Game, Tensor, Tensor], Any]) -> None:
    game = Game()
    run.prepare(*game.parts)
    for real, noise in run.batches(TensorDataset(POINTS, NOISE), batch_size=BATCH):
        run.step(losses(game, *game.losses(real, noise)))


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (lambda game, of_maker, of_judge: {}, "nothing"),
        (lambda game, of_maker, of_judge: {torch.optim.SGD([REAL], 1.0): of_maker}, "SGD"),
        (lambda game, of_maker, of_judge: {game.by_maker: of_maker.detach()}, "without a gradient"),
        (lambda game, of_maker, of_judge: {game.by_maker: of_maker[None]}, "a scalar"),
    ],
)
def test_what_losses_may_be(losses: Callable[[Game, Tensor, Tensor], Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message), peerloom.elastic() as run:
        stepping(run, losses)


def test_pieces_of_a_batch_step_the_same_optimisers() -> None:
    calls: list[int] = []

    def other(game: Game, of_maker: Tensor, of_judge: Tensor) -> dict[Any, Tensor]:
        calls.append(1)
        return {game.by_maker: of_maker} if len(calls) % 2 else {game.by_judge: of_judge}

    with pytest.raises(PeerloomError, match="pieces before"), peerloom.elastic(micro_batch=8) as run:
        stepping(run, other)
