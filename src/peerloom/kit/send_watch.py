"""What a stream's reader may take to take a message, watched at little cost for each message."""

import asyncio

from peerloom.kit.logs import get_logger
from peerloom.kit.server_limits import SEND_LIMIT_S


class SendWatch:
    """Ends the call of a reader that doesn't take what it was sent: one timer, however many messages."""

    def __init__(self, method: str) -> None:
        task = asyncio.current_task()
        assert task is not None, "a call runs in a task"
        self._method, self._task, self._loop = method, task, asyncio.get_running_loop()
        self._began_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """A message is being sent."""
        self._began_s = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(SEND_LIMIT_S, self._look)

    def end(self) -> None:
        """The reader has taken it."""
        self._began_s = None

    def _look(self) -> None:
        self._timer = None
        if self._began_s is None:
            return
        left_s = self._began_s + SEND_LIMIT_S - self._loop.time()
        if left_s > 0:  # of a later message than the one that the timer was set for
            self._timer = self._loop.call_later(left_s, self._look)
            return
        get_logger().warning("reader_too_slow", method=self._method, limit_s=SEND_LIMIT_S)
        self._task.cancel()

    def __enter__(self) -> "SendWatch":
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
