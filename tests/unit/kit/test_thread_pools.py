"""Threads of pools bear their name for the kernel, too, so that others can be told from them."""

import os
import threading
from pathlib import Path

from benchmarks.soak.sampling import threads_beside_pools
from peerloom.kit.thread_pools import FETCH, POOLS, named_pool

LIMIT_S = 30


def kernel_name() -> str:
    return Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().strip()


def test_a_pool_s_threads_have_its_name() -> None:
    with named_pool(FETCH, 2) as pool:
        assert pool.submit(kernel_name).result(LIMIT_S) == FETCH
    assert all(len(name) <= 15 for name in POOLS), "the kernel keeps no more"


def test_a_soak_counts_the_threads_that_belong_to_no_pool() -> None:
    """Three of a pool at work at once, then one of nobody's beside them."""
    before = threads_beside_pools(os.getpid())
    all_are_there, end = threading.Barrier(4, timeout=LIMIT_S), threading.Event()
    with named_pool(FETCH, 3) as pool:
        for _ in range(3):
            pool.submit(all_are_there.wait)
        all_are_there.wait()
        assert threads_beside_pools(os.getpid()) == before
        other = threading.Thread(target=end.wait, args=(LIMIT_S,))
        other.start()
        assert threads_beside_pools(os.getpid()) == before + 1
        end.set()
        other.join()
