"""What else goes on on this machine: the owner's load, typing at terminals, the workers' memory."""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import psutil

from peerloom.services.node_agent.owner.policy import HostUsage


class HostUsageMeter:
    """Measures between one look and the next, in a thread, for some milliseconds a look."""

    def __init__(self) -> None:
        self._last = _measure()

    async def look(self) -> HostUsage:
        """What others than the agent and its workers did since the last look."""
        return await asyncio.to_thread(self._look)

    async def memory_of(self, pids: Iterable[int]) -> Mapping[int, int]:
        """Bytes that each process uses by itself, with its children, not what it shares with others."""
        return await asyncio.to_thread(_memory_of, pids)

    def available_bytes(self) -> int:
        """Memory that could be given to new processes now."""
        return psutil.virtual_memory().available

    def _look(self) -> HostUsage:
        busy_s, own, total_s = _measure()
        last_busy_s, last_own, last_total_s = self._last
        self._last = busy_s, own, total_s
        # A process that ended in between takes its share of this stretch with it: one look, then forgotten.
        own_s = sum(used_s - last_own.get(pid, 0.0) for pid, used_s in own.items())
        others_s = max(0.0, busy_s - last_busy_s - own_s)
        passed_s = max(total_s - last_total_s, 1e-6)
        now = time.localtime()
        return HostUsage(60 * now.tm_hour + now.tm_min, min(1.0, others_s / passed_s), _typed_ago_s())


def _measure() -> tuple[float, dict[int, float], float]:
    """Busy seconds of all cores, of each process of ours, and the cores' seconds in all."""
    busy_s, total_s = busy_seconds(psutil.cpu_times())
    return busy_s, own_seconds(), total_s


def own_seconds() -> dict[int, float]:
    """Processor time of the agent and of each process below it, by pid."""
    own: dict[int, float] = {}
    agent = psutil.Process()
    for process in [agent, *agent.children(recursive=True)]:
        with suppress(psutil.Error):
            used = process.cpu_times()
            own[process.pid] = used.user + used.system
    return own


def busy_seconds(times: Any) -> tuple[float, float]:
    """The busy seconds, and all, of what psutil tells of one or of all cores."""
    # Guests' time is contained in the users', and waiting for a disk is not work.
    counted = {name: getattr(times, name) for name in times._fields if not name.startswith("guest")}
    total_s = sum(counted.values())
    return total_s - counted["idle"] - counted.get("iowait", 0.0), total_s


def _memory_of(pids: Iterable[int]) -> dict[int, int]:
    used = {}
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            used[pid] = sum(_own_bytes(each) for each in [process, *process.children(recursive=True)])
    return used


def _own_bytes(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_full_info().uss)
    return 0


def _typed_ago_s() -> float | None:
    ages = []
    for user in psutil.users():
        with suppress(OSError, TypeError):
            ages.append(time.time() - os.stat(f"/dev/{user.terminal}").st_atime)
    return max(0.0, min(ages)) if ages else None
