"""Work in threads that is waited for even when its caller is cancelled."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


async def run_to_end(
    threads: Executor, work: Callable[[], T], interrupt: Callable[[], object] = lambda: None
) -> T:
    """The result of `work`, done in a thread.

    A cancellation calls `interrupt`, which makes the work end soon, and goes on its way when it has ended:
    nobody closes a file or a socket that a thread still uses.
    """
    running = asyncio.get_running_loop().run_in_executor(threads, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        interrupt()
        await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # looked at, so that nobody is told of it later
        raise
