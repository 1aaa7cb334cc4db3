"""Virtual time that passes only while somebody waits for something: one loop and thread for all clients.

A call of a client without async is such a wait. Between two of them nothing happens in the system, so what a
test sees depends on its calls alone, not on how fast the machine is.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from peerloom.client.loop_thread import LoopThread, copy_outcome
from peerloom.errors import DeadlineError, FailedPreconditionError
from peerloom.testing.virtual_loop import VirtualLoop

T = TypeVar("T")


class DrivenLoop(VirtualLoop):
    """Stands still while nobody waits. Each wait may last `limit_s` virtual seconds."""

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self.limit_s = limit_s
        self._waits: dict[Future[Any], None] = {}
        self._changed = threading.Condition()
        self.thread = threading.Thread(target=self._serve, name="peerloom-in-memory", daemon=True)
        self.thread.start()

    def is_own_thread(self) -> bool:
        """Whether this very thread is the loop's."""
        return threading.current_thread() is self.thread

    def begin(self, outcome: "Future[Any]", start: Callable[[], None]) -> None:
        """From now on somebody waits for `outcome`, which `start` leads to; from any thread."""
        with self._changed:
            self._waits[outcome] = None
            self.call_soon(start)
            self._changed.notify()

    def end(self, outcome: "Future[Any]") -> None:
        """Nobody waits for this any more; on the loop's thread."""
        with self._changed:
            self._waits.pop(outcome, None)

    def end_all(self) -> None:
        """Ends the thread, and with it time; waits under way fail."""
        if self.thread.is_alive():
            self.begin(Future(), self.stop)
            self.thread.join()

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """As ever; it runs as soon as somebody waits."""
        with self._changed:
            return self.call_soon(callback, *args, context=context)

    def _run_once(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._waits)
        super()._run_once()

    def _serve(self) -> None:
        asyncio.set_event_loop(self)
        error: BaseException = FailedPreconditionError("the system in memory is closed.")
        try:
            self.run_forever()
        except Exception as raised:  # a service spins, or nothing is left to happen
            error = raised
        finally:
            asyncio.set_event_loop(None)
            with self._changed:
                for outcome in self._waits:
                    if not outcome.done():
                        outcome.set_exception(error)


class DrivenThread(LoopThread):
    """What one client without async runs on: the loop that it shares with the whole system."""

    def __init__(self, loop: DrivenLoop) -> None:
        self._driven = self._loop = loop
        self._thread = loop.thread
        self._closing = threading.Lock()
        self.closed = False

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs `last`; loop and thread belong to the system. A second close does nothing."""
        with self._closing:
            if self.closed:
                return
            self.closed = True
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._wait_for(last())

    def _wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        wrong = ""
        if threading.current_thread() is self._thread:
            wrong = "code that the system's own loop runs must use an AsyncClient: this call would block it."
        elif not self._thread.is_alive():
            wrong = "the system in memory is closed."
        if wrong:
            coroutine.close()
            raise FailedPreconditionError(wrong)
        return super()._wait_for(coroutine)

    def _start(
        self, coroutine: Coroutine[Any, Any, T], outcome: "Future[T]", started: list[asyncio.Task[T]]
    ) -> None:
        loop = self._driven

        async def limited() -> T:
            try:
                async with asyncio.timeout(loop.limit_s) as limit:
                    return await coroutine
            except TimeoutError:
                if not limit.expired():
                    raise
            raise DeadlineError(
                f"{loop.limit_s:g} s of the system's time went by, and nothing ended this wait.",
                reason="NOTHING_HAPPENS",
            )

        def start() -> None:
            started.append(loop.create_task(limited()))
            started[0].add_done_callback(lambda task: self._ended(task, outcome))

        loop.begin(outcome, start)

    def _ended(self, task: "asyncio.Task[T]", outcome: "Future[T]") -> None:
        self._driven.end(outcome)  # first: time stands still before the waiting thread goes on
        copy_outcome(task, outcome)
