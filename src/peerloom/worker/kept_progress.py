"""The progress that the trainer hasn't stored yet, kept by each worker in case that it has to tell of it."""

import threading
from collections import deque

from peerloom.v1.trainer_pb2 import WorkerSessionRequest

# A worker that isn't rank 0 reports nothing, but must be able to if rank 0 dies before it could.
PROGRESS_KEPT = 20_000  # some 10 MB; at 100 steps a second the trainer may be away for three minutes


class KeptProgress:
    """Messages of steps and epochs, the newest ones. Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal may interrupt its holder and need it
        self._messages: deque[WorkerSessionRequest] = deque(maxlen=PROGRESS_KEPT)

    def add(self, message: WorkerSessionRequest) -> None:
        """A step was committed, or an epoch measured."""
        with self._lock:
            self._messages.append(message)

    def pending(self) -> list[WorkerSessionRequest]:
        """What isn't stored yet, in order."""
        with self._lock:
            return list(self._messages)

    def forget(self, step: int, epoch: int) -> None:
        """Progress up to there is stored, or won't count."""
        with self._lock:
            kept = [one for one in self._messages if one.step.step > step or one.epoch.epoch > epoch]
            self._messages = deque(kept, PROGRESS_KEPT)

    def forget_after(self, step: int, epoch: int) -> None:
        """Progress after there won't count: it is made again."""
        with self._lock:
            kept = [one for one in self._messages if one.step.step <= step and one.epoch.epoch <= epoch]
            self._messages = deque(kept, PROGRESS_KEPT)
