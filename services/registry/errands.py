"""Work that is finished whether or not its asker still waits."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from peerloom.errors import PeerloomError
from peerloom.kit.logs import get_logger

T = TypeVar("T")
_log = get_logger()


class Errands:
    """Tasks of our own: a caller whose deadline passes doesn't leave a change half made."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs `work` to its end; a failure that nobody waits for is logged."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._finished)
        return task

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which goes on even when the caller is cancelled."""
        return await asyncio.shield(self.start(work))

    async def wait_all(self) -> None:
        """Returns when nothing is under way."""
        while self._running:
            await asyncio.wait(self._running)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, PeerloomError):
            _log.error("errand_crashed", exc_info=error)
