"""The progress that the trainer hasn't stored yet: gathered, told, and told again when that is wanted.

Each worker keeps it, in case that it has to tell of it; the one that reports gathers its steps for a moment,
since a message each would cost the trainer more than a short step is worth. All is told on the session's
loop, so that it comes in order.
"""

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from peerloom.v1.trainer_pb2 import EpochProgress, StepProgress, WorkerSessionRequest, WorkerSteps

# A worker that isn't rank 0 reports nothing, but must be able to if rank 0 dies before it could.
PROGRESS_KEPT = 20_000  # some 10 MB; at 100 steps a second the trainer may be away for three minutes
# Some 200 steps, far from what a message may have: a federated round tells of each client.
MESSAGE_BYTES = 2**16
Progress = StepProgress | EpochProgress


@dataclass
class _Kept:
    progress: Progress
    made_s: float
    is_told: bool = False


class ProgressReports:
    """Steps and epochs, the newest ones; `send` is called on `loop`. Any thread may call what is public."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Callable[[WorkerSessionRequest], None]) -> None:
        self.interval_s = 0.0  # for which steps are gathered
        self._loop, self._send = loop, send
        self._lock = threading.RLock()  # a signal may interrupt its holder and need it
        self._kept: deque[_Kept] = deque(maxlen=PROGRESS_KEPT)
        self._reports = self._is_due = False
        self._told_s = -math.inf

    def add(self, progress: Progress) -> None:
        """A step was committed, or an epoch measured; told soon, an epoch at once, if this worker reports."""
        with self._lock:
            self._kept.append(_Kept(progress, self._loop.time()))
            is_due, self._is_due = self._is_due, self._is_due or self._reports
        if not self._reports or (is_due and isinstance(progress, StepProgress)):
            return
        self._soon(self._gather if isinstance(progress, StepProgress) else self._tell_new)

    def set_reporting(self, reports: bool) -> None:
        """Whether this worker is the one that reports: what isn't stored yet, and its next step at once."""
        with self._lock:
            self._reports, self._is_due = reports, False  # what was gathered goes with the rest
        if reports:
            self._soon(self._begin_reporting)

    def tell_all(self) -> None:
        """Tells what isn't stored yet, whoever reported until now: that worker may be lost."""
        if not self._reports:
            self._soon(self._tell_all)

    def tell_before(self, message: WorkerSessionRequest) -> None:
        """Sends a message, behind what was gathered so far if this worker reports."""

        def tell() -> None:
            self._tell_new()
            self._send(message)

        self._soon(tell)

    def _tell_new(self) -> None:
        with self._lock:
            self._is_due = False
            new = [one for one in self._kept if not one.is_told] if self._reports else []
        if new:
            self._told_s = self._loop.time()
        self._tell(new)

    def pending(self) -> list[WorkerSessionRequest]:
        """What this worker has to tell over a new stream: all that isn't stored, in order, if it reports."""
        with self._lock:
            return self._messages(self._kept) if self._reports else []

    def forget(self, step: int, epoch: int) -> None:
        """Progress up to there is stored, or won't count."""
        self._keep(lambda progress: not _is_within(progress, step, epoch))

    def forget_after(self, step: int, epoch: int) -> None:
        """Progress after there won't count: it is made again."""
        self._keep(lambda progress: _is_within(progress, step, epoch))

    def _keep(self, is_kept: Callable[[Progress], bool]) -> None:
        with self._lock:
            self._kept = deque((one for one in self._kept if is_kept(one.progress)), PROGRESS_KEPT)

    def _soon(self, tell: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the stream has ended for good, and its loop with it
            self._loop.call_soon_threadsafe(tell)

    def _gather(self) -> None:
        left_s = self._told_s + self.interval_s - self._loop.time()
        if left_s > 0:
            self._loop.call_later(left_s, self._tell_new)
        else:
            self._tell_new()

    def _begin_reporting(self) -> None:
        self._tell_all()
        self._told_s = -math.inf  # here, as what was said before may be told only now

    def _tell_all(self) -> None:
        with self._lock:
            kept = list(self._kept)
        self._tell(kept)

    def _tell(self, kept: Iterable[_Kept]) -> None:
        for message in self._messages(kept):
            self._send(message)

    def _messages(self, kept: Iterable[_Kept]) -> list[WorkerSessionRequest]:
        messages: list[WorkerSessionRequest] = []
        now_s, left_bytes = self._loop.time(), 0
        for one in kept:
            one.is_told = True
            if isinstance(one.progress, EpochProgress):
                messages.append(WorkerSessionRequest(epoch=one.progress))
                left_bytes = 0
                continue
            if left_bytes <= 0:
                messages.append(WorkerSessionRequest(steps=WorkerSteps()))
                left_bytes = MESSAGE_BYTES
            messages[-1].steps.steps.append(one.progress)
            messages[-1].steps.ages_s.append(now_s - one.made_s)
            left_bytes -= one.progress.ByteSize()
        return messages


def _is_within(progress: Progress, step: int, epoch: int) -> bool:
    return progress.step <= step if isinstance(progress, StepProgress) else progress.epoch <= epoch
