"""Aim: from the same sums come the same parameters, as plain torch makes them; also after a resume."""

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from safetensors.torch import load
from test_broken_step import new_group, train
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import lr_scheduler

from peerloom.errors import DataLossError, InvalidArgumentError
from peerloom.v1.trainer_pb2 import JobSpec
from peerloom.worker.task import Split, Task
from peerloom.worker.training import Training
from peerloom.worker.training_state import TrainingState
from peerloom.worker.updating.precision import GradientScaler
from peerloom.worker.updating.task_updater import updater_of
from peerloom.worker.updating.updater import Updater

CPU = torch.device("cpu")
STEPS = 10
Schedules = Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]


def rising(step: int, until: int) -> float:
    return min(1.0, (step + 1) / until)


def two_parts(optimiser: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    parts = [
        lr_scheduler.LinearLR(optimiser, 0.1, total_iters=3),
        lr_scheduler.CosineAnnealingLR(optimiser, 7),
    ]
    return lr_scheduler.SequentialLR(optimiser, parts, [3])


SCHEDULES: dict[str, Schedules] = {
    "as transformers makes them": lambda o: lr_scheduler.LambdaLR(o, functools.partial(rising, until=4)),
    "milestones": lambda o: lr_scheduler.MultiStepLR(o, [2, 2, 6]),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.5, STEPS),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.2, 4),
    "two parts": two_parts,
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.1, 4), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
}


class Points(Task):
    """Twelve points in two batches of five and one of two, in the form and with the settings given."""

    def __init__(self, named: bool = False, **settings: Any) -> None:
        self.named = named
        self.types: list[torch.dtype] = []
        for name, value in settings.items():
            setattr(self, name, value)

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    def data(self) -> tuple[Split, Split]:
        points = torch.arange(36.0).reshape(12, 3) / 36
        split = Split((points,) if self.named else points, (points[:, 0] > 0.4).long())
        return split, split

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.types.append(outputs.dtype)
        return super().loss(outputs, targets)

    def metric(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.types.append(outputs.dtype)
        return super().metric(outputs, targets)


class Scheduled(Points):
    """With a learning rate that falls by a tenth each step."""

    def scheduler(self, optimiser: torch.optim.Optimizer, total_steps: int) -> lr_scheduler.LRScheduler:
        assert total_steps == 6
        return lr_scheduler.ExponentialLR(optimiser, 0.9)


def trained(task: Task, **changes: Any) -> Training:
    spec = JobSpec(epochs=2, batch_size=5, learning_rate=0.5, seed=7, **changes)
    training = Training(task, spec, CPU)
    group = new_group(1)
    train(training, group)
    group.close()
    return training


def plainly_trained(training: Training, task: Task, after: Callable[[nn.Module], None]) -> nn.Module:
    """The same by plain torch: `after` each backward pass something is done with the gradients."""
    torch.manual_seed(7)
    model, (points, labels) = task.model(), (Points().data()[0].inputs, task.data()[0].targets)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for step in range(training.schedule.total_steps):
        first, end = training.schedule.bounds(step)
        chosen = training.schedule.order(training.schedule.epoch_of(step))[first:end]
        loss = functional.cross_entropy(model(points[chosen]), labels[chosen], reduction="none").sum()
        (loss * (1 / len(chosen))).backward()
        after(model)
        optimiser.step()
        optimiser.zero_grad()
        if isinstance(task, Scheduled):
            optimiser.param_groups[0]["lr"] = 0.5 * 0.9 ** (step + 1)
    return model


def same(model: nn.Module, other: nn.Module) -> bool:
    return all(itertools.starmap(torch.equal, zip(model.parameters(), other.parameters(), strict=True)))


@pytest.mark.parametrize("named", [False, True], ids=["tensor", "tuple"])
def test_a_task_without_settings_is_trained_as_by_a_plain_loop_to_the_last_bit(named: bool) -> None:
    training = trained(Points(named))
    assert training.state.step == 6
    assert same(training.state.model, plainly_trained(training, Points(), lambda model: None))


def test_schedule_and_clipping_are_those_of_a_plain_loop() -> None:
    def clip(model: nn.Module) -> None:
        assert nn.utils.clip_grad_norm_(model.parameters(), 0.05) > 0.05

    training = trained(Scheduled(clip_norm=0.05))
    model = plainly_trained(training, Scheduled(), clip)
    torch.testing.assert_close(list(training.state.model.parameters()), list(model.parameters()))
    assert training.state.updater.learning_rate == pytest.approx(0.5 * 0.9**6)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_state_goes_on_in_the_schedule_where_the_other_was(name: str) -> None:
    """Of every kind of schedule: the same rates to the end, and the same fingerprint at each step."""

    def begin() -> TrainingState:
        model = nn.Linear(2, 2)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return TrainingState(model, Updater(model, [optimiser], [SCHEDULES[name](optimiser)]))

    def step(state: TrainingState) -> tuple[float, int]:
        for parameter in state.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        state.updater.step()
        return state.updater.learning_rate, state.fingerprint()

    first, second = begin(), begin()
    rates = [step(first)[0] for _ in range(4)]
    assert len({*rates, 0.1}) > 1, "it moves"
    second.from_bytes(first.to_bytes())
    assert second.fingerprint() == first.fingerprint()
    assert [step(second) for _ in range(STEPS - 4)] == [step(first) for _ in range(STEPS - 4)]


def test_the_fingerprint_tells_learning_rates_apart() -> None:
    model = nn.Linear(2, 2)
    updater = Updater(model, [torch.optim.SGD(model.parameters(), lr=0.1)])
    before = updater.fingerprint()
    updater.optimisers[0].param_groups[0]["lr"] = 0.2
    assert updater.fingerprint() != before


def test_the_optimisers_state_goes_by_names_and_fits_no_other_parameters() -> None:
    model = nn.Linear(2, 2)

    def begin(*names: str) -> TrainingState:
        groups = [{"params": [getattr(model, name)]} for name in names]
        return TrainingState(model, Updater(model, [torch.optim.SGD(groups, lr=0.1, momentum=0.9)]))

    first = begin("weight", "bias")
    model(torch.ones(1, 2)).sum().backward()
    first.updater.step()
    tensors = load(first.to_bytes())
    assert {name for name in tensors if name.startswith("optimiser")} == {
        "optimiser.weight.momentum_buffer",
        "optimiser.bias.momentum_buffer",
    }
    for other in (("bias",), ("bias", "weight")):
        with pytest.raises(DataLossError):
            begin(*other).take(dict(tensors))
    same_again = begin("weight", "bias")
    same_again.take(dict(tensors))
    described, moments = same_again.updater.state()
    assert [group["params"] for group in described["groups"]] == [["weight"], ["bias"]]
    assert moments["optimiser.bias.momentum_buffer"].tolist() == [1.0, 1.0]


def test_parameters_that_the_optimiser_leaves_alone_are_neither_clipped_nor_kept() -> None:
    """The weight's gradient (3, 4) has the norm 5 and is clipped to 1; the bias has one of 100."""
    model = nn.Linear(2, 1)
    start = model.weight.detach().clone()
    updater = Updater(model, [torch.optim.SGD([model.weight], lr=1.0)], clip_norm=1.0)
    model.weight.grad, model.bias.grad = torch.tensor([[3.0, 4.0]]), torch.tensor([100.0])
    updater.step()
    torch.testing.assert_close(start - model.weight.detach(), torch.tensor([[0.6, 0.8]]))
    assert model.bias.grad is None


def test_fp16_leaves_out_a_step_that_overflows_and_halves_its_scale() -> None:
    """The scale begins at 2**16; a loss keeps its value, its gradient is taken times the scale."""
    model = nn.Linear(1, 1, bias=False)
    updater = Updater(model, [torch.optim.SGD(model.parameters(), lr=1.0)], (), None, GradientScaler(CPU))
    start = float(model.weight.detach())
    loss = updater.scaled(model(torch.ones(1, 1)).sum())
    assert float(loss.detach()) == start
    loss.backward()
    assert model.weight.grad is not None
    assert float(model.weight.grad) == 2.0**16
    updater.step()
    assert float(model.weight.detach()) == pytest.approx(start - 1.0)
    model.weight.grad = torch.full((1, 1), torch.inf)
    updater.step()
    assert float(model.weight.detach()) == pytest.approx(start - 1.0)
    assert updater.state()[0]["scale"]["scale"] == 2.0**15


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_half_precision_is_for_training_and_the_measure_is_of_the_model_as_it_answers(
    name: str, dtype: torch.dtype
) -> None:
    task = Scheduled(autocast=name, clip_norm=1.0)
    training = trained(task)
    assert set(task.types) == {dtype, torch.float32}
    assert task.types.count(dtype) == 6
    assert {parameter.dtype for parameter in training.state.model.parameters()} == {torch.float32}
    plain = plainly_trained(training, Scheduled(), lambda model: None)
    # Eight bits of mantissa in the forward pass, and clipping doesn't bite.
    torch.testing.assert_close(
        list(training.state.model.parameters()), list(plain.parameters()), rtol=0.1, atol=0.05
    )


@pytest.mark.parametrize("setting", [{"autocast": "bf16"}, {"micro_batch": 2}], ids=str)
def test_what_cannot_be_computed_again_is_refused_where_workers_check_one_another(
    setting: dict[str, Any],
) -> None:
    spec = JobSpec(epochs=1, batch_size=5, learning_rate=0.1, robust="auto")
    with pytest.raises(InvalidArgumentError, match=rf"Points\.{next(iter(setting))} is .*robust 'off'"):
        Training(Points(**setting), spec, CPU)


def test_fp16_is_refused_with_a_codec_that_adds_what_it_left_out() -> None:
    spec = JobSpec(epochs=1, batch_size=5, learning_rate=0.1, sync="codec=int8")
    with pytest.raises(InvalidArgumentError, match=r"autocast is 'fp16', but the job's codec 'int8'.*'bf16'"):
        Training(Points(autocast="fp16"), spec, CPU)
    assert Training(Points(autocast="bf16"), spec, CPU).sync.has_feedback


def test_a_rank_above_all_the_model_s_sides_is_refused() -> None:
    spec = JobSpec(epochs=1, batch_size=5, learning_rate=0.1, sync="codec=powersgd:8")
    with pytest.raises(InvalidArgumentError, match=r"'powersgd:8', but .*Points has.* at most 3") as caught:
        Training(Points(), spec, CPU)
    assert caught.value.reason == "RANK_ABOVE_SIDES"


class Plateau(Points):
    """Its metric never improves, so a rate of 0.5 is halved each epoch but the first two."""

    epochs = 4

    def metric(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.ones(len(targets))

    def scheduler(self, optimiser: torch.optim.Optimizer, total_steps: int) -> lr_scheduler.LRScheduler:
        return lr_scheduler.ReduceLROnPlateau(optimiser, mode="max", factor=0.5, patience=0)


def test_a_schedule_by_a_metric_sees_each_epochs_once_with_the_step_after_it() -> None:
    """Epoch 1 is the best, 2 is worse by nothing, so its metric halves the rate at epoch 3's first step."""
    training = Training(Plateau(), JobSpec(epochs=4, batch_size=5, learning_rate=0.5, seed=7), CPU)
    rates: list[float] = []

    def note(progress: object) -> None:
        rates.append(training.state.updater.learning_rate)

    group = new_group(1)
    train(training, group, note)
    group.close()
    # Three steps and the epoch's end, each time.
    assert rates == [0.5] * 8 + [0.25] * 4 + [0.125] * 4

    again = Training(Plateau(), JobSpec(epochs=4, batch_size=5, learning_rate=0.5, seed=7), CPU)
    again.state.from_bytes(training.state.to_bytes())
    assert again.state.fingerprint() == training.state.fingerprint()
    training.state.reopen_epoch(training.schedule.steps_per_epoch)
    assert again.state.fingerprint() != training.state.fingerprint(), "the last epoch is to be measured anew"
    training.state.close_epoch(4, 1.0)
    assert again.state.fingerprint() == training.state.fingerprint()


def test_a_schedule_by_a_metric_is_refused_in_rounds_and_a_foreign_parameter_everywhere() -> None:
    model = Points().model()
    with pytest.raises(InvalidArgumentError, match=r"Plateau\.scheduler\(\) is 'ReduceLROnPlateau'"):
        Training(Plateau(), JobSpec(epochs=4, batch_size=5, learning_rate=0.5, sync="period=2"), CPU)
    foreign = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)
    with pytest.raises(InvalidArgumentError, match=r"parameter 0, \[2\], which isn't the model's"):
        Updater(model, [foreign])


class Two(Points):
    """Weights by momentum with a schedule, biases by Adam without one."""

    def optimiser(
        self, parameters: Iterable[nn.Parameter], learning_rate: float
    ) -> list[torch.optim.Optimizer]:
        chosen = list(parameters)
        weights = torch.optim.SGD(chosen[::2], lr=learning_rate, momentum=0.9)
        return [weights, torch.optim.Adam(chosen[1::2], lr=learning_rate)]

    def scheduler(self, optimiser: Any, total_steps: int) -> lr_scheduler.LRScheduler:
        return lr_scheduler.ExponentialLR(optimiser[0], 0.9)


def test_several_optimisers_share_the_parameters_out() -> None:
    training = trained(Two())
    torch.manual_seed(7)
    model = Points().model()
    weights, biases = optimisers = Two().optimiser(model.parameters(), 0.5)
    points, labels = Points().data()[0].inputs, Points().data()[0].targets
    for step in range(6):
        first, end = training.schedule.bounds(step)
        chosen = training.schedule.order(training.schedule.epoch_of(step))[first:end]
        loss = functional.cross_entropy(model(points[chosen]), labels[chosen], reduction="none").sum()
        (loss * (1 / len(chosen))).backward()
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
        weights.param_groups[0]["lr"] *= 0.9
    assert same(training.state.model, model)
    assert biases.param_groups[0]["lr"] == 0.5

    again = Training(Two(), JobSpec(epochs=2, batch_size=5, learning_rate=0.5, seed=8), CPU)
    again.state.from_bytes(training.state.to_bytes())
    assert again.state.fingerprint() == training.state.fingerprint()
    with pytest.raises(DataLossError, match="schedule"):
        trained(Points()).state.from_bytes(training.state.to_bytes())


def test_an_optimiser_without_a_gradient_rests_and_its_schedule_with_it() -> None:
    model = nn.Linear(2, 1)
    optimisers = [torch.optim.SGD([each], lr=1.0) for each in model.parameters()]
    schedules = [lr_scheduler.ExponentialLR(each, 0.5) for each in optimisers]
    updater = Updater(model, optimisers, schedules)
    bias = float(model.bias.detach())
    model.weight.grad = torch.ones_like(model.weight)
    updater.step()
    assert [each.param_groups[0]["lr"] for each in optimisers] == [0.5, 1.0]
    assert float(model.bias.detach()) == bias


@pytest.mark.parametrize(
    ("optimisers", "scheduler", "message"),
    [
        (
            lambda m: [torch.optim.SGD(m.parameters(), 1.0), torch.optim.SGD([m.bias], 1.0)],
            None,
            "two with bias",
        ),
        (lambda m: [m], None, "optimiser.*Linear.*of torch"),
        (lambda m: [], None, "nothing"),
        (lambda m: torch.optim.SGD(m.parameters(), 1.0), lambda: 3, "scheduler.*int"),
        (
            lambda m: torch.optim.SGD(m.parameters(), 1.0),
            lambda: lr_scheduler.ExponentialLR(torch.optim.SGD(nn.Linear(1, 1).parameters(), 1.0), 0.5),
            "of another optimiser",
        ),
    ],
)
def test_what_optimisers_and_schedules_may_be(
    optimisers: Callable[[nn.Module], Any], scheduler: Callable[[], Any] | None, message: str
) -> None:
    class Chosen(Points):
        def optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> Any:
            return optimisers(model)

        def scheduler(self, optimiser: Any, total_steps: int) -> Any:
            return scheduler() if scheduler is not None else None

    model = nn.Linear(2, 1)
    with pytest.raises(InvalidArgumentError, match=message):
        updater_of(Chosen(), model, 0.1, 6)


def test_a_state_without_a_schedule_does_not_fit_one_with() -> None:
    with_one, without = trained(Scheduled()).state, trained(Points()).state
    with pytest.raises(DataLossError, match="schedule"):
        with_one.from_bytes(without.to_bytes())
