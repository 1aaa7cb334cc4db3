"""How a newcomer catches up: it records the others' steps until it has the state, and replays them.

It takes part in every collective with nothing to add, and keeps the sum of gradients of each step. When the
state as of its entry has come, it makes the kept steps itself, one by one. The updater is deterministic, so
it arrives at the same parameters, bit for bit.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import torch

from peerloom.errors import DataLossError
from peerloom.worker.joining.streaming import StateReceiver
from peerloom.worker.schedule import Schedule
from peerloom.worker.training_state import TrainingState

STEPS_AT_LEAST = 2  # made in each step, so that it catches up although one more comes
MEMORY_PART = 0.5  # of what is free, for kept gradients


class CatchUpState(IntEnum):
    """How far a newcomer is; LOST_TRACK: it needs the state in another way."""

    RECORDING = 0
    CAUGHT_UP = 1
    LOST_TRACK = 2


@dataclass(frozen=True)
class _RecordedStep:
    gradients: list[torch.Tensor | None]
    loss_sum: float
    steps: int  # that were committed at once


class CatchUp:
    """Records from the group's `step` on, of which `evaluated` epochs are measured.

    At most `memory_bytes` of gradients are kept. `now_s` is a monotonic clock, which limits each replay.
    """

    def __init__(
        self,
        state: TrainingState,
        schedule: Schedule,
        receiver: StateReceiver,
        step: int,
        evaluated: int,
        memory_bytes: int | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.step = step
        self.evaluated = evaluated
        self.lost_track = ""
        self.most_kept = 0
        self._state = state
        self._schedule = schedule
        self._receiver = receiver
        self._now_s = now_s
        self._kept: deque[_RecordedStep] = deque()
        self._has_state = False
        self._memory_bytes = memory_bytes if memory_bytes is not None else _free_bytes(state)
        self._metrics: dict[int, float] = {}  # of the epochs that were measured since
        self._gradient_bytes = sum(p.numel() * p.element_size() for p in state.model.parameters())

    @property
    def state(self) -> CatchUpState:
        """Whether the state has come and no recorded step is left to be made."""
        if self.lost_track:
            return CatchUpState.LOST_TRACK
        return CatchUpState.CAUGHT_UP if self._has_state and not self._kept else CatchUpState.RECORDING

    def record(self, loss_sum: float, steps: int = 1) -> None:
        """So many steps were committed at once; their gradients are those of the model just now."""
        parameters = self._state.model.parameters()
        gradients = [None if p.grad is None else p.grad.detach().clone() for p in parameters]
        self.step += steps
        if self.lost_track:
            return
        self._kept.append(_RecordedStep(gradients, loss_sum, steps))
        self.most_kept = max(self.most_kept, len(self._kept))
        if len(self._kept) * self._gradient_bytes > self._memory_bytes:
            self._lose_track(f"the gradients of {len(self._kept)} steps are all that memory has room for")

    def measured(self, metric: float) -> None:
        """The group has measured an epoch."""
        self.evaluated += 1
        self._metrics[self.evaluated] = metric

    def replay(self, budget_s: float) -> None:
        """Makes recorded steps for about `budget_s` seconds, at least two, if the state has come."""
        end_s, made = self._now_s() + budget_s, 0
        if not self._has_state and not self.lost_track:
            self._take_state()
        while self._has_state and self._kept and (made < STEPS_AT_LEAST or self._now_s() < end_s):
            self._make_step(self._kept.popleft())
            made += 1
        if self.state == CatchUpState.CAUGHT_UP:
            self._close_epochs(self.evaluated)

    def close(self) -> None:
        """Forgets what it recorded."""
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

    def _make_step(self, recorded: _RecordedStep) -> None:
        state = self._state
        self._close_epochs(state.step // self._schedule.steps_per_epoch)
        for parameter, gradient in zip(state.model.parameters(), recorded.gradients, strict=True):
            parameter.grad = gradient
        state.updater.step()
        state.step += recorded.steps
        state.epoch_loss_sum += recorded.loss_sum

    def _close_epochs(self, complete: int) -> None:
        # The others measured each epoch before its next step, and began a new sum.
        if self._state.evaluated < complete:
            self._state.close_epoch(complete, self._metrics[complete])

    def _lose_track(self, reason: str) -> None:
        self.lost_track = reason
        self._kept.clear()
        self._receiver.close()


def _free_bytes(state: TrainingState) -> int:
    import psutil  # here, as a loop that runs alone needs neither it nor what it needs of the system

    device = next(state.model.parameters()).device
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    return int(MEMORY_PART * free)
