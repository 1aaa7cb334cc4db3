"""Forward passes that begin while a step's sums still come: what waits for what, and what a break undoes.

There is one rank, whose sums come when the test lets them: what they are worth is as without this.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from test_broken_step import new_group, train
from torch import Tensor, nn

from peerloom.v1.trainer_pb2 import EpochProgress, JobSpec, StepProgress
from peerloom.worker import loop
from peerloom.worker.forward_ahead import ForwardAhead
from peerloom.worker.group.process_group import Group
from peerloom.worker.group.waits import GenerationBrokenError
from peerloom.worker.plan import slot_memory
from peerloom.worker.sync import SyncTraffic
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.coming_sum import ComingSum
from peerloom.worker.sync.scheduled import ScheduledReduce
from peerloom.worker.task import Split, Task
from peerloom.worker.training import Training

SAMPLES, BATCH, EPOCHS = 20, 4, 2  # five steps an epoch, of which the third to the fifth begin ahead
CUT = "schedule=cut:1024"


class Arriving(ScheduledReduce):
    """Each parameter's gradient is a bucket by itself, and is "summed" when it is taken, the last first.

    `on_take` is called with the step and the parameter's place in the model; `late` are those that come only
    when they are waited for.
    """

    def __init__(self, model: nn.Module, on_take: Callable[[int, int], None], late: Iterable[int]) -> None:
        self.traffic = SyncTraffic()
        self.model, self.on_take, self.late = model, on_take, set(late)
        self.step = 0
        self.sums: list[ComingSum] = []

    def forward(self, inputs: Any) -> Any:
        return self.model(inputs)

    def send(self, loss: Tensor) -> list[ComingSum]:
        self.mean = float(loss.detach())
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.step += 1
        self.sums = [self._sum(*one) for one in enumerate(self.model.parameters())]
        return self.sums[::-1]

    def finish(self) -> float:
        for one in self.sums:
            one.take()
        return self.mean

    def close(self) -> None:
        pass

    def _sum(self, place: int, parameter: Tensor) -> ComingSum:
        assert parameter.grad is not None
        gradient, step = parameter.grad, self.step
        arrived: torch.futures.Future[Any] = torch.futures.Future()
        if place not in self.late:
            arrived.set_result(gradient)

        def put() -> None:
            self.on_take(step, place)
            gradient.mul_(0.5)  # so that a gradient that isn't summed yet would be another

        layout = Layout(gradient.numel(), ((parameter, gradient.size(), gradient.stride(), 0),))
        return ComingSum(layout, [arrived], put)


class Points(Task):
    """Few points, of which a model makes two classes; `said` are the model's layers as they begin."""

    def __init__(self, layers: Callable[[], nn.Module], optimiser: Any = None) -> None:
        self.layers, self.said = layers, list[str]()
        self.own_optimiser = optimiser

    def model(self) -> nn.Module:
        made = self.layers()
        for name, module in made.named_children():
            module.register_forward_pre_hook(lambda *_, name=name: self.said.append(f"layer {name}"))
        return made

    def data(self) -> tuple[Split, Split]:
        inputs = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(5))
        split = Split(inputs, (inputs[:, 0] > inputs[:, 1]).long())
        return split, split

    def optimiser(self, parameters: Iterable[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
        made = self.own_optimiser or (lambda own: torch.optim.AdamW(own, lr=learning_rate))
        optimiser: torch.optim.Optimizer = made(parameters)
        return optimiser


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))


def new_training(task: Task, sync: str) -> Training:
    spec = JobSpec(epochs=EPOCHS, batch_size=BATCH, learning_rate=0.1, seed=7, sync=sync)
    return Training(task, spec, torch.device("cpu"))


def run(
    patch: pytest.MonkeyPatch,
    training: Training,
    groups: Sequence[Group],
    on_take: Callable[[int, int], None] = lambda step, place: None,
    late: Iterable[int] = (),
    report: Callable[[StepProgress | EpochProgress], None] = lambda progress: None,
) -> None:
    """Trains to the end, in one generation after the other."""
    patch.setattr(loop, "synchroniser", lambda model, *_: Arriving(model, on_take, late))
    for group in groups[:-1]:
        with pytest.raises(GenerationBrokenError):
            train(training, group, report)
    train(training, groups[-1], report)


def bits(training: Training) -> bytes:
    return training.state.to_bytes()


def trained(patch: pytest.MonkeyPatch, layers: Callable[[], nn.Module], sync: str, **more: Any) -> Training:
    training = new_training(Points(layers, **more), sync)
    run(patch, training, [new_group(1)], late=range(4))
    return training


def test_each_layer_waits_for_its_own_sum_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters 0 and 1 are the first layer's, 2 and 3 the second's; 3's comes early, the others on demand.

    Two steps of an epoch wait for all, the first two; the last does, too.
    """
    task = Points(dense)
    training = new_training(task, CUT)

    def on_take(step: int, place: int) -> None:
        task.said.append(f"sum {place} of {step}")

    def report(progress: StepProgress | EpochProgress) -> None:
        if isinstance(progress, StepProgress):
            task.said.append(f"step {progress.step}")

    run(monkeypatch, training, [new_group(1)], on_take, late=(0, 1, 2), report=report)
    layers = ["layer 0", "layer 1", "layer 2"]
    whole = ["sum 0 of 1", "sum 1 of 1", "sum 2 of 1", "sum 3 of 1", "step 1"]
    apart = [
        "layer 0",
        "sum 0 of 2",
        "sum 3 of 2",
        "sum 1 of 2",
        "layer 1",
        "layer 2",
        "sum 2 of 2",
        "step 2",
    ]
    assert task.said[: len(layers) * 2 + len(whole) + len(apart)] == [*layers, *whole, *layers, *apart]
    fifth = task.said[task.said.index("step 4") + 1 : task.said.index("step 5")]
    assert fifth == [f"sum {place} of 5" for place in range(4)], "an epoch's end is waited for"


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_it_comes_to_the_same_bits(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    """Dropout's chance is each step's own, too."""

    def made(own: Any) -> torch.optim.Optimizer:
        optimiser: torch.optim.Optimizer = kind(own, lr=0.1)
        return optimiser

    ahead = trained(monkeypatch, dense, CUT, optimiser=made)
    assert bits(ahead) == bits(trained(monkeypatch, dense, "schedule=bsp", optimiser=made))
    assert ahead.state.step == EPOCHS * SAMPLES // BATCH


class UsesDirectly(nn.Module):
    """As attention does: the second layer's module is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        inside = nn.functional.linear(inputs, self.first.weight, self.first.bias)
        return inside @ self.second.weight.T + self.second.bias


class Hidden(UsesDirectly):
    """What torch isn't told of: a weight goes by another tensor with the same memory."""

    def forward(self, inputs: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            inside = inputs @ self.first.weight.t()
        return nn.functional.linear(inside + self.first.bias, self.second.weight, self.second.bias)


class Normalised(UsesDirectly):
    """With running means."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.BatchNorm1d(2, affine=False)

    def forward(self, inputs: Tensor) -> Tensor:
        normalised: Tensor = self.mean(super().forward(inputs))
        return normalised


class Masked(UsesDirectly):
    """With a buffer that stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 2.0]))

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs * self.mask)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("step", [2, 3, 4])
def test_what_breaks_between_two_layers_undoes_the_step(
    monkeypatch: pytest.MonkeyPatch, step: int, place: int
) -> None:
    """Some parameters are updated by then; the step is made again, with its own moments and chance."""
    training, groups = new_training(Points(dense), CUT), [new_group(1), new_group(2)]
    states, before = [bits(training)], list[tuple[int, bytes]]()

    def on_take(number: int, taken: int) -> None:
        if (number, taken) == (step, place) and not before:
            before.append((training.state.step, states[-1]))
            raise GenerationBrokenError("a peer was lost")

    def report(progress: StepProgress | EpochProgress) -> None:
        states.append(bits(training))

    with monkeypatch.context() as patch:
        patch.setattr(loop, "synchroniser", lambda model, *_: Arriving(model, on_take, range(4)))
        with pytest.raises(GenerationBrokenError):
            train(training, groups[0], report)
    assert before == [(step - 1, bits(training))], "as after the last step that was told"
    run(monkeypatch, training, groups[1:], late=range(4))
    assert bits(training) == bits(trained(monkeypatch, dense, "schedule=bsp"))


@pytest.mark.parametrize(
    ("layers", "begun", "wasted"),
    [(UsesDirectly, 7, 0), (Masked, 0, 0), (Normalised, 0, 0), (Hidden, 1, 1)],
)
def test_models_that_use_parameters_in_their_own_way_come_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, layers: Callable[[], nn.Module], begun: int, wasted: int
) -> None:
    """A pass that can't be trusted is made again, and none begins ahead from then on.

    Of five steps an epoch the last is waited for, and so is the first of all.
    """
    passes, begun_ahead = list[int](), begins_counted(monkeypatch)

    def counted() -> nn.Module:
        model = layers()
        model.register_forward_pre_hook(lambda *_: passes.append(1) if model.training else None)
        return model

    ahead = trained(monkeypatch, counted, CUT)
    steps = ahead.state.step
    assert len(begun_ahead) == begun
    assert len(passes) == steps + wasted
    assert bits(ahead) == bits(trained(monkeypatch, layers, "schedule=bsp"))


def begins_counted(patch: pytest.MonkeyPatch) -> list[int]:
    """Has an entry for each forward pass that begins ahead, from now on."""
    begun: list[int] = []
    backward = ForwardAhead.backward

    def counted(self: ForwardAhead, part: Tensor, following: Any, group: Group) -> float:
        begun.append(following.share.step)
        return backward(self, part, following, group)

    patch.setattr(ForwardAhead, "backward", counted)
    return begun


def test_without_memory_for_a_copy_of_the_state_all_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """26 parameters of 4 bytes and AdamW's two moments of each, and for each of four tensors a count."""
    state_bytes = 3 * 26 * 4 + 4 * 4
    for free_bytes, begins_ahead in ((4 * state_bytes - 1, False), (4 * state_bytes, True)):
        monkeypatch.setattr(slot_memory, "free_bytes", lambda _, free=free_bytes: free)
        task = Points(dense)
        training = new_training(task, CUT)

        def report(progress: StepProgress | EpochProgress, said: list[str] = task.said) -> None:
            said.append(f"step {getattr(progress, 'step', 0)}")

        run(monkeypatch, training, [new_group(1)], report=report)
        layers = task.said[task.said.index("step 1") + 1 : task.said.index("step 2")]
        assert layers == ["layer 0", "layer 1", "layer 2"] * (2 if begins_ahead else 1)


def test_pieces_of_a_batch_and_clipping_wait_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = begins_counted(monkeypatch)
    for limits in ({"micro_batch": 2}, {"clip_norm": 0.5}):
        made = []
        for sync in (CUT, "schedule=bsp"):
            task = Points(dense)
            for name, value in limits.items():
                setattr(task, name, value)
            training = new_training(task, sync)
            run(monkeypatch, training, [new_group(1)], late=range(4))
            made.append(bits(training))
        assert made[0] == made[1]
    assert not begun
