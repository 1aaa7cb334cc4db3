"""A newcomer's ear: it hears what the others' steps do to the parameters until it has the state to do so too.

It takes part in every collective with nothing to add, and keeps the sum of gradients of each step. When the
state as of its entry has come, it makes the kept steps itself, one by one. The optimiser is deterministic, so
it arrives at the same parameters, bit for bit.
"""

import time
from collections import deque
from dataclasses import dataclass

import psutil
import torch

from peerloom.errors import DataLossError
from peerloom.worker.schedule import Schedule
from peerloom.worker.state import TrainingState
from peerloom.worker.streaming import Receiver

STEPS_AT_LEAST = 2  # made in each step, so that it catches up although one more comes
MEMORY_PART = 0.5  # of what is free, for kept gradients

LISTENING, CAUGHT_UP, LOST_TRACK = 0, 1, 2


@dataclass(frozen=True)
class _Heard:
    gradients: list[torch.Tensor | None]
    loss_sum: float


class Listener:
    """Listens from the group's `step` on, of which `evaluated` epochs are measured."""

    def __init__(
        self,
        state: TrainingState,
        schedule: Schedule,
        receiver: Receiver,
        step: int,
        evaluated: int,
        memory_bytes: int | None = None,
    ) -> None:
        self.step = step
        self.evaluated = evaluated
        self.lost_track = ""
        self.most_kept = 0
        self._state = state
        self._schedule = schedule
        self._receiver = receiver
        self._kept: deque[_Heard] = deque()
        self._has_state = False
        self._memory_bytes = memory_bytes if memory_bytes is not None else _free_bytes(state)
        self._gradient_bytes = sum(p.numel() * p.element_size() for p in state.model.parameters())

    @property
    def standing(self) -> int:
        """LISTENING, CAUGHT_UP with the group, or LOST_TRACK: it needs the state in another way."""
        if self.lost_track:
            return LOST_TRACK
        return CAUGHT_UP if self._has_state and not self._kept else LISTENING

    def hear(self, loss_sum: float) -> None:
        """A step was committed; its gradients are those of the model just now."""
        parameters = self._state.model.parameters()
        gradients = [None if p.grad is None else p.grad.detach().clone() for p in parameters]
        self.step += 1
        if self.lost_track:
            return
        self._kept.append(_Heard(gradients, loss_sum))
        self.most_kept = max(self.most_kept, len(self._kept))
        if len(self._kept) * self._gradient_bytes > self._memory_bytes:
            self._lose_track(f"the gradients of {len(self._kept)} steps are all that memory has room for")

    def catch_up(self, budget_s: float) -> None:
        """Makes kept steps for about `budget_s` seconds, at least two, if the state has come."""
        end_s, made = time.monotonic() + budget_s, 0
        if not self._has_state and not self.lost_track:
            self._take_state()
        while self._has_state and self._kept and (made < STEPS_AT_LEAST or time.monotonic() < end_s):
            self._make_step(self._kept.popleft())
            made += 1
        if self.standing == CAUGHT_UP:
            self._close_epochs(self.evaluated)

    def close(self) -> None:
        """Forgets what it heard."""
        self._receiver.close()
        self._kept.clear()

    def _take_state(self) -> None:
        tensors = self._receiver.take()
        if tensors is None:
            if self._receiver.failure:
                self._lose_track(self._receiver.failure)
            return
        try:
            self._state.take(tensors)
        except DataLossError as error:
            self._lose_track(error.message)
            return
        self._has_state = True

    def _make_step(self, heard: _Heard) -> None:
        state = self._state
        self._close_epochs(state.step // self._schedule.steps_per_epoch)
        for parameter, gradient in zip(state.model.parameters(), heard.gradients, strict=True):
            parameter.grad = gradient
        state.optimiser.step()
        state.optimiser.zero_grad()
        state.step += 1
        state.epoch_loss_sum += heard.loss_sum

    def _close_epochs(self, complete: int) -> None:
        # The others measured each epoch before its next step, and began a new sum.
        if self._state.evaluated < complete:
            self._state.close_epoch(complete)

    def _lose_track(self, reason: str) -> None:
        self.lost_track = reason
        self._kept.clear()
        self._receiver.close()


def _free_bytes(state: TrainingState) -> int:
    device = next(state.model.parameters()).device
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    return int(MEMORY_PART * free)
