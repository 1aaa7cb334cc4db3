"""An event loop on virtual time: nothing waits or blocks, and the same callbacks come in the same order.

Each callback belongs to the run of a process, which its context names, or to the world outside. A run that is
dead gets no more callbacks, whatever its tasks were about to do; those of a frozen one wait for the thaw.
"""

import asyncio
import contextvars
import heapq
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Protocol

_INSTANT_LIMIT = 200_000


class Owner(Protocol):
    """A run of a process, as the loop sees it."""

    def admits(self, handle: asyncio.Handle) -> bool:
        """Whether a callback may run now; else the run keeps it, or it is dropped."""

    def adopt(self, task: "OrderedTask") -> None:
        """A task of this run was made."""

    def disk_delays_s(self) -> tuple[float, float]:
        """How long work in a thread waits before it begins, and from its end until its caller hears of it."""


current_run: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("current_run", default=None)


_OUTSIDE = contextvars.Context()


class StuckError(Exception):
    """Nothing is left to happen, or time stands still."""


class OrderedTask(asyncio.Task[Any]):
    """A task whose place in a set depends on its number, not on its address in memory."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, loop: "VirtualLoop", **arguments: Any) -> None:
        self._number = loop.next_number()
        super().__init__(coro, loop=loop, **arguments)
        self._log_destroy_pending = False  # tasks of killed processes are never finished

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class OrderedFuture(asyncio.Future[Any]):
    """The same for futures."""

    def __init__(self, *, loop: "VirtualLoop") -> None:
        self._number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.BaseEventLoop):
    """Jumps to the next timer when nothing is to be done now.

    More callbacks in one instant than `instant_limit` raise StuckError: a service that spins without letting
    time pass would hang its test.
    """

    def __init__(self) -> None:
        super().__init__()
        self.instant_limit = _INSTANT_LIMIT
        self._now_s = 0.0
        self._numbers = 0
        self._in_this_instant = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.is_over = False
        self.callbacks = 0
        self.set_task_factory(_make_task)

    def next_number(self) -> int:
        """Tasks and futures are numbered in the order of their making."""
        self._numbers += 1
        return self._numbers

    def time(self) -> float:
        """Virtual seconds since the history began."""
        return self._now_s

    def create_future(self) -> "asyncio.Future[Any]":
        """A future with a stable hash."""
        return OrderedFuture(loop=self)

    def run_in_executor(  # type: ignore[override]  # typeshed's version has a TypeVarTuple
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Runs `func` on the loop, after a while; its caller hears of the result a while later.

        A process that dies in between has done the work and does not know it.
        """
        owner = current_run.get()
        before_s, after_s = owner.disk_delays_s() if owner is not None else (0.0, 0.0)
        future = self.create_future()
        start_s = self._now_s + before_s
        if isinstance(executor, ThreadPoolExecutor) and executor._max_workers == 1:
            start_s = max(start_s, getattr(executor, "free_s", 0.0))  # one after the other
            executor.free_s = start_s  # type: ignore[attr-defined]  # a note of ours
        self.call_at(start_s, self._work, future, after_s, func, args)
        return future

    def _work(
        self, future: "asyncio.Future[Any]", after_s: float, func: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        if future.cancelled():
            return  # it had not begun, so a real pool would not begin it either
        result, error = None, None
        try:
            result = func(*args)
        except Exception as raised:
            error = raised
        self.call_later(after_s, _settle, future, result, error)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        """As ever; what is due at the same time runs in the order in which it was asked for."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, timer))
        return timer

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        """As ever; after the end of the history nothing happens any more."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_over:
            self._ready.append(handle)  # type: ignore[attr-defined]  # asyncio's own queue
        return handle

    def later(self, after_s: float, callback: Callable[..., Any], *args: Any) -> None:
        """As `call_later`, for what happens whoever dies meanwhile."""
        self.call_later(after_s, callback, *args, context=_OUTSIDE)

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one thread

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]  # asyncio's own queue
        if not ready:
            while timers and timers[0][2].cancelled():
                heapq.heappop(timers)
            if not timers:
                raise StuckError("nothing is left to happen")
            if timers[0][0] > self._now_s:
                self._now_s, self._in_this_instant = timers[0][0], 0
        while timers and timers[0][0] <= self._now_s:
            ready.append(heapq.heappop(timers)[2])
        count = len(ready)
        self.callbacks += count
        self._in_this_instant += count
        if self._in_this_instant > self.instant_limit:
            raise StuckError(f"time stands still at {self._now_s} s: {ready[0]!r}")
        for _ in range(count):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            owner = handle._context.get(current_run)
            if owner is None or owner.admits(handle):
                handle._run()

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:  # type: ignore[override]  # a TypeVarTuple
        """Nobody sends signals here."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when their time comes."""

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        if not self.is_over:
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]  # asyncio's own

    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    def _process_events(self, event_list: Any) -> None:
        """There are none."""


def _make_task(loop: Any, coro: Any, **arguments: Any) -> OrderedTask:
    task = OrderedTask(coro, loop=loop, **arguments)
    context = arguments.get("context")
    owner = current_run.get() if context is None else context.get(current_run)
    if owner is not None:
        owner.adopt(task)
    return task


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
