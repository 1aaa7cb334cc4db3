"""What a stream's reader may take to take a message, watched at little cost for each message."""

import asyncio

from peerloom.kit.logs import get_logger
from peerloom.kit.server_limits import SEND_LIMIT_S


class SendWatch:
    """Ends the call of a reader that doesn't take what it was sent: one timer, however many messages.

    `began_s` is since when a message is being sent, by `time`; None: none is. `is_set`: while the timer runs,
    which `set` starts.
    """

    def __init__(self, method: str) -> None:
        task = asyncio.current_task()
        assert task is not None, "a call runs in a task"
        self.began_s: float | None = None
        self.is_set = False
        self._method, self._task, self._loop = method, task, asyncio.get_running_loop()
        self.time = self._loop.time
        self._timer: asyncio.TimerHandle | None = None

    def set(self, after_s: float | None = None) -> None:
        """Looks in so many seconds whether a message has waited for too long."""
        self.is_set = True
        limit_s = SEND_LIMIT_S if after_s is None else after_s
        self._timer = self._loop.call_later(limit_s, self._look)

    def _look(self) -> None:
        self.is_set = False
        if self.began_s is None:
            return
        left_s = self.began_s + SEND_LIMIT_S - self.time()
        if left_s > 0:  # of a later message than the one that the timer was set for
            self.set(left_s)
            return
        get_logger().warning("reader_too_slow", method=self._method, limit_s=SEND_LIMIT_S)
        self._task.cancel()

    def __enter__(self) -> "SendWatch":
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
