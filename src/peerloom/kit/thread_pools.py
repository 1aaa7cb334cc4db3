"""Pools of threads that the kernel knows by name, as `top -H` and /proc/PID/task/*/comm show them.

A pool makes its threads one by one, as more is to be done at once than ever before, and keeps them: a service
that has run for an hour has more threads than one that has just begun, and no more than its pools may have.
By their names they can be told from threads that somebody forgot to end.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

SQL, FETCH, BULK, LOOP = "sql", "fetch", "bulk", "asyncio"
POOLS = frozenset((SQL, FETCH, BULK, LOOP))
LOOP_THREADS = min(32, (os.cpu_count() or 1) + 4)  # asyncio's own choice


def named_pool(name: str, threads: int) -> ThreadPoolExecutor:
    """A pool of at most so many threads, each with the name, of at most 15 characters."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=_take_name, initargs=(name,))


def _take_name(name: str) -> None:
    with suppress(OSError):  # not on Linux, or /proc isn't there: a name is a help, no more
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
