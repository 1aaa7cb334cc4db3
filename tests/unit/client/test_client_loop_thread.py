"""The private loop of the sync face: results, errors, leaving early, its end."""

import asyncio
import gc
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Iterator

import pytest

from peerloom.client.loop_thread import LoopThread
from peerloom.errors import FailedPreconditionError, NotFoundError
from peerloom.kit.interruptible import TURN_S

LIMIT_S = 60.0


async def nothing() -> None:
    pass


async def answer() -> int:
    return 42


async def fail() -> None:
    raise NotFoundError("no")


class Counter:
    """An endless async generator that tells when it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    async def items(self) -> AsyncGenerator[int, None]:
        number = 0
        try:
            while True:
                yield number
                number += 1
        finally:
            self.closed.set()


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    made.close(nothing)


def test_results_and_errors_come_through(loop: LoopThread) -> None:
    assert loop.run(answer()) == 42
    with pytest.raises(NotFoundError):
        loop.run(fail())


async def test_it_works_inside_a_running_loop(loop: LoopThread) -> None:
    assert loop.run(answer()) == 42


def test_leaving_an_iteration_closes_its_source(loop: LoopThread) -> None:
    counter = Counter()
    for number in loop.iterate(counter.items()):
        if number == 2:
            break
    gc.collect()
    assert counter.closed.wait(LIMIT_S)


def test_ctrl_c_just_after_the_start_ends_an_iteration_as_later(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coroutine runs already, and nobody waits for it yet."""
    begun, closed = threading.Event(), threading.Event()
    schedule, calls = loop._loop.call_soon_threadsafe, list[int]()

    async def silent() -> AsyncGenerator[int, None]:
        try:
            begun.set()
            await asyncio.Event().wait()
            yield 0
        finally:
            closed.set()

    def interrupted(callback: Callable[[], object]) -> object:
        handle = schedule(callback)
        calls.append(1)
        if len(calls) == 1:
            assert begun.wait(LIMIT_S)
            raise KeyboardInterrupt
        return handle

    monkeypatch.setattr(loop._loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(iter(loop.iterate(silent())))
    assert closed.wait(LIMIT_S)


def test_ctrl_c_ends_a_wait_though_another_thread_took_the_signal(loop: LoopThread) -> None:
    async def take_the_signal() -> None:
        signal.raise_signal(signal.SIGINT)  # it meets the loop's thread
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        loop.run(take_the_signal())


def test_an_answer_may_take_long_and_be_a_timeout_of_its_own(loop: LoopThread) -> None:
    async def run_out_of_time() -> None:
        async with asyncio.timeout(2 * TURN_S):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        loop.run(run_out_of_time())


def test_several_threads_may_use_it(loop: LoopThread) -> None:
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(loop.run(answer()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert results == [42] * 8


def test_close_ends_thread_and_waiters() -> None:
    """A call that waits in another thread is told so; the thread is gone; a second close does nothing."""
    loop, waiting, told = LoopThread(), threading.Event(), []

    async def wait_forever() -> None:
        waiting.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            loop.run(wait_forever())
        except FailedPreconditionError as error:
            told.append(error.reason)

    caller = threading.Thread(target=call)
    caller.start()
    assert waiting.wait(LIMIT_S)
    loop.close(nothing)
    caller.join(LIMIT_S)
    loop.close(nothing)
    assert told == ["CLIENT_CLOSED"]
    loop._thread.join(LIMIT_S)
    assert not loop._thread.is_alive()


def test_a_closed_loop_refuses() -> None:
    loop = LoopThread()
    loop.close(nothing)
    with pytest.raises(FailedPreconditionError) as caught:
        loop.run(answer())
    assert caught.value.reason == "CLIENT_CLOSED"
