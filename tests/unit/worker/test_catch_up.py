"""A catch_up arrives at the others' parameters bit for bit, whenever the state comes. No network, no time."""

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load
from torch.optim import lr_scheduler

from peerloom.worker.joining.broadcast import SMALL_BYTES, plan_transfer
from peerloom.worker.joining.catch_up import CatchUp, CatchUpState
from peerloom.worker.schedule import Schedule
from peerloom.worker.training_state import TrainingState
from peerloom.worker.updating.precision import GradientScaler
from peerloom.worker.updating.updater import Updater

SCHEDULE = Schedule(samples=40, batch_size=10, epochs=50, seed=1)  # 4 steps an epoch
OVERFLOWS_EACH = 4  # step of those whose gradients are scaled


def whole_updater(model: torch.nn.Module) -> Updater:
    """With all that an updater may have: schedules by step and by metric, clipping, and a scale."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    warm_up = lr_scheduler.LinearLR(optimiser, 0.1, total_iters=5)
    falling = lr_scheduler.CosineAnnealingLR(optimiser, 40)
    schedule = lr_scheduler.SequentialLR(optimiser, [warm_up, falling], [5])
    by_metric = lr_scheduler.ReduceLROnPlateau(optimiser, factor=0.9, patience=0)
    return Updater(model, [optimiser], [schedule, by_metric], 0.5, GradientScaler(torch.device("cpu")))


UPDATERS: dict[str, Callable[[torch.nn.Module], Updater]] = {
    "momentum": lambda m: Updater(
        m, [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)]
    ),
    "adam": lambda m: Updater(m, [torch.optim.Adam(m.parameters(), lr=0.01)]),
    "whole": whole_updater,
}


class Parcel:
    """What a receiver is to a catch_up; `arrive` puts the state in."""

    def __init__(self) -> None:
        self.failure = ""
        self.is_closed = False
        self._tensors: dict[str, torch.Tensor] | None = None

    def arrive(self, data: bytes) -> None:
        self._tensors = load(data)

    def take(self) -> dict[str, torch.Tensor] | None:
        tensors, self._tensors = self._tensors, None
        return tensors

    def close(self) -> None:
        self.is_closed = True


class Town:
    """A member that trains and a newcomer that records its gradients."""

    def __init__(self, optimiser: str, steps_before: int, memory_bytes: int = 10**6) -> None:
        torch.manual_seed(0)
        self.scales = optimiser == "whole"
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        self.member = self._state(model, optimiser)
        self.newcomer = self._state(copy.deepcopy(model), optimiser)
        for _ in range(steps_before):
            self.step(None)
        self.parcel, step, evaluated = Parcel(), self.member.step, self.member.evaluated
        self.sent = self.member.copy()
        self.catch_up = CatchUp(
            self.newcomer,
            SCHEDULE,
            self.parcel,  # type: ignore[arg-type]  # its twin in memory
            step,
            evaluated,
            memory_bytes,
        )

    def _state(self, model: torch.nn.Module, optimiser: str) -> TrainingState:
        return TrainingState(model, UPDATERS[optimiser](model))

    def step(self, catch_up: CatchUp | None) -> None:
        """One step of the group; the sum of gradients is the same for all."""
        state = self.member
        if state.evaluated < state.step // SCHEDULE.steps_per_epoch:
            metric = float(torch.rand(1))
            state.close_epoch(state.evaluated + 1, metric)
            if catch_up is not None:
                catch_up.measured(metric)
        gradients = [torch.randn_like(p) for p in state.model.parameters()]
        if self.scales and state.step % OVERFLOWS_EACH == 0:
            gradients[1][0] = torch.inf
        loss_sum = float(torch.rand(1))
        if catch_up is not None:
            for parameter, gradient in zip(self.newcomer.model.parameters(), gradients, strict=True):
                parameter.grad = gradient.clone()
            catch_up.record(loss_sum)
            self.newcomer.updater.clear()
        for parameter, gradient in zip(state.model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        state.updater.step()
        state.step += 1
        state.epoch_loss_sum += loss_sum


@settings(deadline=None)
@given(
    st.sampled_from(sorted(UPDATERS)),
    st.integers(0, 9),
    st.integers(0, 12),
    st.floats(0, 0.001),
)
def test_it_catches_up_bit_for_bit_whenever_the_state_comes(
    optimiser: str, before: int, arrival: int, budget_s: float
) -> None:
    town = Town(optimiser, before)
    catch_up = town.catch_up
    for _ in range(arrival):
        town.step(catch_up)
        catch_up.replay(budget_s)
        assert catch_up.state == CatchUpState.RECORDING
    town.parcel.arrive(town.sent())
    for _ in range(arrival + 2):  # two at least are made while one more comes
        town.step(catch_up)
        catch_up.replay(budget_s)
        if catch_up.state == CatchUpState.CAUGHT_UP:
            break
    assert catch_up.state == CatchUpState.CAUGHT_UP
    assert catch_up.most_kept >= arrival
    member, newcomer = town.member, town.newcomer
    assert newcomer.step == member.step == catch_up.step
    assert newcomer.evaluated == member.evaluated
    assert newcomer.epoch_loss_sum == member.epoch_loss_sum
    assert newcomer.parameters_digest() == member.parameters_digest()
    assert newcomer.fingerprint() == member.fingerprint()
    assert newcomer.updater.learning_rate == member.updater.learning_rate
    assert newcomer.updater.state()[0] == member.updater.state()[0]


def test_before_the_state_comes_it_has_not_changed_its_own() -> None:
    town = Town("adam", 5)
    before = town.newcomer.parameters_digest()
    for _ in range(3):
        town.step(town.catch_up)
        town.catch_up.replay(1.0)
    assert (town.newcomer.step, town.newcomer.parameters_digest()) == (0, before)
    assert town.catch_up.step == 8


def test_it_keeps_no_more_gradients_than_memory_has_room_for() -> None:
    """A gradient has 26 numbers of 4 bytes: two fit into 250 bytes, three don't."""
    town = Town("momentum", 1, memory_bytes=250)
    states = []
    for _ in range(3):
        town.step(town.catch_up)
        states.append(town.catch_up.state)
    assert states == [CatchUpState.RECORDING, CatchUpState.RECORDING, CatchUpState.LOST_TRACK]
    assert "3 steps" in town.catch_up.lost_track
    assert town.parcel.is_closed
    town.step(town.catch_up)
    assert town.catch_up.step == 5, "it goes on counting"


def test_it_says_why_the_state_did_not_come() -> None:
    town = Town("momentum", 1)
    town.parcel.failure = "the line was closed"
    town.step(town.catch_up)
    town.catch_up.replay(1.0)
    assert (town.catch_up.state, town.catch_up.lost_track) == (CatchUpState.LOST_TRACK, "the line was closed")


def test_a_state_of_another_model_is_refused() -> None:
    town = Town("momentum", 1)
    other = torch.nn.Linear(2, 2)
    town.parcel.arrive(TrainingState(other, UPDATERS["momentum"](other)).to_bytes())
    town.step(town.catch_up)
    town.catch_up.replay(1.0)
    assert town.catch_up.state == CatchUpState.LOST_TRACK


@pytest.mark.parametrize("change", ["parameters", "optimiser"])
def test_the_fingerprint_tells_states_apart(change: str) -> None:
    town = Town("adam", 3)
    before = town.member.fingerprint()
    assert before == town.member.fingerprint()
    with torch.no_grad():
        if change == "parameters":
            next(town.member.model.parameters()).view(-1)[0] += 1e-7
        else:
            next(iter(town.member.updater.optimisers[0].state.values()))["exp_avg"].view(-1)[0] += 1e-7
    assert town.member.fingerprint() != before


@pytest.mark.parametrize(
    ("state_bytes", "bytes_per_s", "step_s", "catches_up"),
    [
        (SMALL_BYTES - 1, 1.0, 0.001, False),
        (100_000_000, 1e9, 0.3, False),  # 0.1 s of 0.3 s
        (100_000_000, 1e9, 0.2, False),  # just half
        (100_000_000, 1e9, 0.19, True),
        (100_000_000, 1e9, 0.0, True),  # nothing is known of the steps
        (100_000_000, 0.0, 10.0, True),  # nor of the network
    ],
)
def test_a_state_is_broadcast_when_that_takes_less_than_half_a_step(
    state_bytes: int, bytes_per_s: float, step_s: float, catches_up: bool
) -> None:
    plan = plan_transfer(state_bytes, bytes_per_s, step_s)
    assert plan.catches_up is catches_up
    assert plan.reason
