"""Operations of a training sample, counted: what a speed in GFLOP/s rests on."""

import pytest
import torch

from peerloom.worker.result import training_gflops
from peerloom.worker.speed import BATCH, LAYERS, step_flops
from peerloom.worker.tasks.digits import Digits


def test_the_speed_of_a_model_is_its_operations_by_the_time_of_a_sample() -> None:
    """A layer of 64 by 32: 2*64*32 operations forward, three passes; in a microsecond, 12.288 GFLOP/s."""
    task, model = Digits(), torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32))
    train, _ = task.data()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert training_gflops(task, train, model, 1e-6) == pytest.approx(3 * 2 * 64 * 32 / 1e-6 / 1e9)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_what_was_not_timed_or_cannot_be_counted_has_no_speed() -> None:
    task = Digits()
    train, _ = task.data()
    assert training_gflops(task, train, torch.nn.Linear(64, 32), 0.0) == 0.0
    assert training_gflops(task, train, torch.nn.Linear(7, 7), 1e-6) == 0.0


def test_the_benchmark_s_step_costs_what_its_layers_do() -> None:
    """Forward and the weights' gradient of all three layers, the inputs' of all but the first."""
    n, m = LAYERS[0], LAYERS[-1]
    assert step_flops() == 2 * BATCH * (2 * n * n + 3 * n * n + 3 * n * m)
