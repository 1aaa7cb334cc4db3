"""An epoch that was just measured is measured again by a generation that begins there, with the same loss."""

import torch

from peerloom.worker.training_state import TrainingState
from peerloom.worker.updating.updater import Updater

STEPS = 7


def state_at(step: int, evaluated: int, loss_sum: float) -> TrainingState:
    model = torch.nn.Linear(1, 1)
    state = TrainingState(model, Updater(model, [torch.optim.SGD(model.parameters(), lr=0.1)]))
    state.step, state.evaluated, state.epoch_loss_sum = step, evaluated, loss_sum
    return state


def test_two_who_made_the_same_step_agree_on_what_comes_next() -> None:
    """The generation broke in the evaluation after step 14: one had finished it, the other had not."""
    slow, fast = state_at(14, 1, 3.5), state_at(14, 1, 3.5)
    fast.close_epoch(2, 0.5)
    assert (fast.evaluated, fast.epoch_loss_sum) == (2, 0.0)
    for state in (slow, fast):
        state.reopen_epoch(STEPS)
        assert (state.evaluated, state.epoch_loss_sum) == (1, 3.5)


def test_within_an_epoch_nothing_is_measured_again() -> None:
    for step in (0, 13, 15):
        state = state_at(step, step // STEPS, 1.0)
        state.reopen_epoch(STEPS)
        assert (state.evaluated, state.epoch_loss_sum) == (step // STEPS, 1.0)


def test_what_the_epoch_lost_travels_with_the_state() -> None:
    first, second = state_at(7, 0, 2.5), state_at(0, 0, 0.0)
    first.close_epoch(1, 0.5)
    second.from_bytes(first.to_bytes())
    second.reopen_epoch(STEPS)
    assert (second.step, second.evaluated, second.epoch_loss_sum) == (7, 0, 2.5)
