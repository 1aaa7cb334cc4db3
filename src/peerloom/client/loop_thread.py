"""Where the coroutines of the sync face run: one event loop on a thread of its own.

A class of the sync face lists the methods of its async core (`nodes = blocking(AsyncClient.nodes)`); their
signatures and documentation are the core's. A sync call works inside a running loop too (a notebook's), and
Ctrl-C ends the wait, not the loop: the coroutine is cancelled and waited for, then KeyboardInterrupt goes on
its way.
"""

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError as FutureCancelledError
from concurrent.futures import Future, wait
from functools import wraps
from types import GenericAlias
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_args

from peerloom.errors import FailedPreconditionError
from peerloom.kit.interruptible import TURN_S

C = TypeVar("C", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")
UNWIND_LIMIT_S = 5.0
_END: Any = object()


class LoopThread:
    """An event loop on a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="peerloom-client", daemon=True)
        self._closing = threading.Lock()
        self.closed = False
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, or what it raises. Raises FailedPreconditionError once closed."""
        if self.closed:
            coroutine.close()
            raise _closed_error()
        return self._wait_for(coroutine)

    def _wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        outcome: Future[T] = Future()
        started: list[asyncio.Task[T]] = []
        try:
            self._start(coroutine, outcome, started)
            return _result_of(outcome)
        except FutureCancelledError:
            raise _closed_error() from None
        except BaseException:
            if not outcome.done():  # Ctrl-C may come as soon as the coroutine has begun
                self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in started])
                wait([outcome], UNWIND_LIMIT_S)
            raise

    def iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """The items of an async generator; leaving early, by break or Ctrl-C, closes it."""
        try:
            while (item := self.run(_next(items))) is not _END:
                yield item
        finally:
            self._finish(items)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs `last`, cancels what else runs, ends loop and thread. A second close does nothing."""
        with self._closing:
            if self.closed:
                return
            self.closed = True
        on_own_thread = threading.current_thread() is self._thread
        self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._end(last)))
        if not on_own_thread:  # the garbage collector may call from anywhere
            self._thread.join(UNWIND_LIMIT_S)

    def _start(
        self, coroutine: Coroutine[Any, Any, T], outcome: "Future[T]", started: list[asyncio.Task[T]]
    ) -> None:
        def start() -> None:
            started.append(self._loop.create_task(coroutine))
            started[0].add_done_callback(lambda task: copy_outcome(task, outcome))

        self._loop.call_soon_threadsafe(start)

    def _finish(self, items: AsyncGenerator[Any, None]) -> None:
        if self.closed:
            return
        if threading.current_thread() is self._thread:
            self._loop.create_task(_close(items))
        else:
            self.run(_close(items))

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await last()
            others = asyncio.all_tasks(self._loop) - {asyncio.current_task(self._loop)}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self._loop.shutdown_asyncgens()
            await self._loop.shutdown_default_executor()
        finally:
            self._loop.stop()


class SyncFace(Generic[C]):
    """A sync class over an async `core`, whose coroutines run on `loop`."""

    def __init__(self, core: C, loop: LoopThread) -> None:
        self._core, self._loop = core, loop

    def __init_subclass__(cls) -> None:
        for name, method in vars(cls).items():
            if hasattr(method, "__wrapped__"):
                method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__


def blocking(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncFace[C], P], T]:
    """The sync method that runs a coroutine of the core and returns its result."""

    @wraps(method)
    def call(face: SyncFace[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face._loop.run(method(face._core, *args, **kwargs))

    return call


def blocking_iterator(
    method: Callable[Concatenate[C, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[SyncFace[C], P], Iterator[T]]:
    """The sync method that yields the items of one of the core's async generators."""

    @wraps(method)
    def call(face: SyncFace[C], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        yield from face._loop.iterate(method(face._core, *args, **kwargs))

    signature = inspect.signature(method)
    returned = GenericAlias(Iterator, get_args(signature.return_annotation)[:1])
    call.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]  # inspect reads it
    return call


def copy_outcome(task: "asyncio.Task[T]", outcome: "Future[T]") -> None:
    if task.cancelled():
        outcome.set_exception(FutureCancelledError())
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())


def _result_of(outcome: "Future[T]") -> T:
    while True:
        try:
            return outcome.result(TURN_S)
        except TimeoutError:
            if outcome.done():  # it may be the coroutine's own, or have come with the turn's end
                return outcome.result()


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items, _END)


async def _close(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


def _closed_error() -> FailedPreconditionError:
    return FailedPreconditionError("this client is closed; make a new one.", reason="CLIENT_CLOSED")
