"""Owners of tasks: nobody in a process starts one whose end nobody sees.

`BackgroundTasks` owns what runs as long as the process; `ShieldedWork` what is finished whether or not
its asker still waits.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias, TypeVar

from peerloom.errors import PeerloomError
from peerloom.kit.logs import get_logger

CANCEL_INTERVAL_S = 1.0
SHORTAGE_PAUSE_S = 1.0
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM})
T = TypeVar("T")
Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
_log = get_logger()


class BackgroundTaskError(Exception):
    """Work that a process can't do without has ended, for the reason that is the exception's cause."""


class BackgroundTasks:
    """Tasks that run until `close`; `on_end` is called when one of them ends before it may.

    From `allow_ends` on, a task may return: it has seen that the process stops. What fails because the
    machine is short of something is begun again after a pause, by `sleep`: whoever took it all, a stranger
    perhaps, must not end the process.
    """

    def __init__(
        self, on_end: Callable[[], object], sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self._on_end, self._sleep = on_end, sleep
        self._running: set[asyncio.Task[None]] = set()
        self._may_return = False
        self._is_closing = False
        self._ended: BackgroundTaskError | None = None

    @property
    def running(self) -> dict[str, asyncio.Task[None]]:
        """The tasks that have not ended, by name."""
        return {task.get_name(): task for task in self._running}

    def start(self, name: str, work: Work, *, may_return: bool = False) -> asyncio.Task[None]:
        """Runs `work` until `close` cancels it; `name` is what people are told when it ends before.

        With `may_return` it is not expected to last: only its failure counts.
        """
        assert name not in self.running, f"{name} runs already"
        task = asyncio.create_task(self._endure(name, work), name=name)
        self._running.add(task)
        task.add_done_callback(partial(self._finished, may_return))
        return task

    def allow_ends(self) -> None:
        """A task that returns from now on has done its work."""
        self._may_return = True

    async def close(self) -> None:
        """Cancels all tasks and waits for them. Raises BackgroundTaskError for the first that ended early."""
        self._is_closing = self._may_return = True
        while self._running:
            for task in self._running:
                task.cancel()
            # Once more after a while: whatever they wait for may have swallowed the first one.
            await asyncio.wait(self._running, timeout=CANCEL_INTERVAL_S)
        ended, self._ended = self._ended, None
        if ended is not None:
            raise ended

    async def _endure(self, name: str, work: Work) -> None:
        while True:
            try:
                await work()
                return
            except Exception as error:
                if not is_shortage(error):
                    raise
                _log.error(
                    "background_task_interrupted", task=name, reason=_told(error), again_s=SHORTAGE_PAUSE_S
                )
            await self._sleep(SHORTAGE_PAUSE_S)

    def _finished(self, may_return: bool, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        cause = None if task.cancelled() else task.exception()
        if cause is None and (self._is_closing if task.cancelled() else may_return or self._may_return):
            return
        how = f"failed: {_told(cause)}" if cause else "was cancelled" if task.cancelled() else "returned"
        _log.error("background_task_ended", task=task.get_name(), how=how, exc_info=cause)
        if self._ended is None:
            self._ended = BackgroundTaskError(f"the background task {task.get_name()!r} {how}")
            self._ended.__cause__ = cause
        self._on_end()


class ShieldedWork:
    """Work that goes on when whoever asked for it gives up, so that no change is left half made."""

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
            _log.error("shielded_work_crashed", exc_info=error)


def is_shortage(error: BaseException | None) -> bool:
    """Whether an error comes from a lack of open files, disk or memory, which passes."""
    while error is not None and not (isinstance(error, OSError) and error.errno in _SHORTAGES):
        error = error.__cause__
    return error is not None


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def end_other_tasks() -> None:
    """Ends all tasks of this loop but the one that calls."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
