"""A listener arrives at the others' parameters bit for bit, whenever the state comes. No network, no time."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load

from peerloom.worker.joining import SMALL_BYTES, plan_transfer
from peerloom.worker.listening import CAUGHT_UP, LISTENING, LOST_TRACK, Listener
from peerloom.worker.schedule import Schedule
from peerloom.worker.state import TrainingState

SCHEDULE = Schedule(samples=40, batch_size=10, epochs=50, seed=1)  # 4 steps an epoch
OPTIMISERS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
}


class Parcel:
    """What a receiver is to a listener; `arrive` puts the state in."""

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
    """A member that trains and a newcomer that hears its gradients."""

    def __init__(self, optimiser: str, steps_before: int, memory_bytes: int = 10**6) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        self.member = self._state(model, optimiser)
        self.newcomer = self._state(copy.deepcopy(model), optimiser)
        for _ in range(steps_before):
            self.step(None)
        self.parcel, step, evaluated = Parcel(), self.member.step, self.member.evaluated
        self.sent = self.member.copy()
        self.listener = Listener(
            self.newcomer,
            SCHEDULE,
            self.parcel,  # type: ignore[arg-type]  # its twin in memory
            step,
            evaluated,
            memory_bytes,
        )

    def _state(self, model: torch.nn.Module, optimiser: str) -> TrainingState:
        return TrainingState(model, OPTIMISERS[optimiser](model.parameters()))

    def step(self, listener: Listener | None) -> None:
        """One step of the group; the sum of gradients is the same for all."""
        state = self.member
        if state.evaluated < state.step // SCHEDULE.steps_per_epoch:
            state.evaluated, state.epoch_loss_sum = state.evaluated + 1, 0.0
            if listener is not None:
                listener.evaluated += 1
        gradients = [torch.randn_like(p) for p in state.model.parameters()]
        loss_sum = float(torch.rand(1))
        if listener is not None:
            for parameter, gradient in zip(self.newcomer.model.parameters(), gradients, strict=True):
                parameter.grad = gradient.clone()
            listener.hear(loss_sum)
            self.newcomer.optimiser.zero_grad()
        for parameter, gradient in zip(state.model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        state.optimiser.step()
        state.optimiser.zero_grad()
        state.step += 1
        state.epoch_loss_sum += loss_sum


@settings(deadline=None)
@given(
    st.sampled_from(sorted(OPTIMISERS)),
    st.integers(0, 9),
    st.integers(0, 12),
    st.floats(0, 0.001),
)
def test_it_catches_up_bit_for_bit_whenever_the_state_comes(
    optimiser: str, before: int, arrival: int, budget_s: float
) -> None:
    town = Town(optimiser, before)
    listener = town.listener
    for _ in range(arrival):
        town.step(listener)
        listener.catch_up(budget_s)
        assert listener.standing == LISTENING
    town.parcel.arrive(town.sent())
    for _ in range(arrival + 2):  # two at least are made while one more comes
        town.step(listener)
        listener.catch_up(budget_s)
        if listener.standing == CAUGHT_UP:
            break
    assert listener.standing == CAUGHT_UP
    assert listener.most_kept >= arrival
    member, newcomer = town.member, town.newcomer
    assert newcomer.step == member.step == listener.step
    assert newcomer.evaluated == member.evaluated
    assert newcomer.epoch_loss_sum == member.epoch_loss_sum
    assert newcomer.parameters_digest() == member.parameters_digest()
    assert newcomer.fingerprint() == member.fingerprint()


def test_before_the_state_comes_it_has_not_changed_its_own() -> None:
    town = Town("adam", 5)
    before = town.newcomer.parameters_digest()
    for _ in range(3):
        town.step(town.listener)
        town.listener.catch_up(1.0)
    assert (town.newcomer.step, town.newcomer.parameters_digest()) == (0, before)
    assert town.listener.step == 8


def test_it_keeps_no_more_gradients_than_memory_has_room_for() -> None:
    """A gradient has 26 numbers of 4 bytes: two fit into 250 bytes, three don't."""
    town = Town("momentum", 1, memory_bytes=250)
    standings = []
    for _ in range(3):
        town.step(town.listener)
        standings.append(town.listener.standing)
    assert standings == [LISTENING, LISTENING, LOST_TRACK]
    assert "3 steps" in town.listener.lost_track
    assert town.parcel.is_closed
    town.step(town.listener)
    assert town.listener.step == 5, "it goes on counting"


def test_it_says_why_the_state_did_not_come() -> None:
    town = Town("momentum", 1)
    town.parcel.failure = "the line was closed"
    town.step(town.listener)
    town.listener.catch_up(1.0)
    assert (town.listener.standing, town.listener.lost_track) == (LOST_TRACK, "the line was closed")


def test_a_state_of_another_model_is_refused() -> None:
    town = Town("momentum", 1)
    other = torch.nn.Linear(2, 2)
    town.parcel.arrive(TrainingState(other, torch.optim.SGD(other.parameters(), lr=0.1)).to_bytes())
    town.step(town.listener)
    town.listener.catch_up(1.0)
    assert town.listener.standing == LOST_TRACK


@pytest.mark.parametrize("change", ["parameters", "optimiser"])
def test_the_fingerprint_tells_states_apart(change: str) -> None:
    town = Town("adam", 3)
    before = town.member.fingerprint()
    assert before == town.member.fingerprint()
    with torch.no_grad():
        if change == "parameters":
            next(town.member.model.parameters()).view(-1)[0] += 1e-7
        else:
            next(iter(town.member.optimiser.state.values()))["exp_avg"].view(-1)[0] += 1e-7
    assert town.member.fingerprint() != before


@pytest.mark.parametrize(
    ("state_bytes", "bytes_per_s", "step_s", "listens"),
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
    state_bytes: int, bytes_per_s: float, step_s: float, listens: bool
) -> None:
    plan = plan_transfer(state_bytes, bytes_per_s, step_s)
    assert plan.listens is listens
    assert plan.reason
