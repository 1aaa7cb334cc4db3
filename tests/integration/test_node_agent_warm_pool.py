"""Processes wait, ready, before there is work; those that die are replaced; none is started without need."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from node_agent_parts import LIMIT_S, worker_command

from peerloom.services.node_agent.warm_pool import WarmPool


@dataclass
class Need:
    """How many are wanted now."""

    count: int


@pytest.fixture
def need() -> Need:
    return Need(2)


@pytest.fixture
async def pool(tmp_path: Path, need: Need) -> AsyncIterator[WarmPool]:
    command = worker_command(tmp_path).split(",")
    pool = WarmPool(command, {"OMP_NUM_THREADS": "1"}, lambda: need.count)
    filling = asyncio.create_task(pool.keep_filled())
    yield pool
    filling.cancel()
    with suppress(asyncio.CancelledError):
        await filling
    await pool.close()


async def until_filled(pool: WarmPool) -> None:
    async with asyncio.timeout(LIMIT_S):
        await pool.filled.wait()


def waiting(tmp_path: Path) -> list[int]:
    """The pool's processes, by this test's own command: the side's other children aren't its."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it has just ended
            if any(str(tmp_path) in part for part in child.cmdline()):
                found.append(child.pid)
    return found


async def test_ready_ones_are_taken_before_a_fresh_one_is_started(pool: WarmPool, need: Need) -> None:
    await until_filled(pool)
    need.count = 0
    taken = [await pool.take() for _ in range(3)]
    assert [process.ready.is_set() for process in taken] == [True, True, False]
    for process in taken:
        await process.stop(0)


async def test_no_more_are_started_than_wanted(pool: WarmPool, need: Need, tmp_path: Path) -> None:
    await until_filled(pool)
    assert len(waiting(tmp_path)) == 2
    taken = await pool.take()
    need.count = 1
    pool.refill()
    await until_filled(pool)
    assert len(waiting(tmp_path)) == 2
    await taken.stop(0)


async def test_one_that_died_waiting_is_replaced(pool: WarmPool, tmp_path: Path) -> None:
    await until_filled(pool)
    [victim, other] = waiting(tmp_path)
    os.kill(victim, signal.SIGKILL)
    pool.filled.clear()
    await until_filled(pool)
    alive = waiting(tmp_path)
    assert len(alive) == 2
    assert other in alive
    assert victim not in alive


async def test_closing_ends_those_that_wait(pool: WarmPool, need: Need, tmp_path: Path) -> None:
    await until_filled(pool)
    need.count = 0
    await pool.close()
    assert waiting(tmp_path) == []
