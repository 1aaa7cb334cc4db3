"""Reads how busy the machine is, every few seconds and beside the heartbeats, which carry it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import psutil

from peerloom.kit.limits import MAX_ACCELERATORS
from peerloom.sandbox.cgroup_usage import cpu_limit, memory_limit
from peerloom.services.node_agent.owner.host_usage import busy_seconds, own_seconds
from peerloom.services.node_agent.owner.inventory import ask_nvidia_smi, usable_cores
from peerloom.services.node_agent.owner.machine_load import LoadReading, load_between, parse_gpu_loads
from peerloom.v1.registry_pb2 import GpuLoad, MachineLoad

FIRST_LOOK_S, LOOK_INTERVAL_S = 1.0, 5.0
_GPU_FIELDS = "uuid,utilization.gpu,memory.used,memory.total"


class LoadMeter(Protocol):
    """Looks at the machine."""

    async def look(self) -> MachineLoad | None:
        """How busy it was since the last look; None at the first, and while that isn't known."""


class MachineLoadMeter:
    """Reads this very machine, for milliseconds a look, and asks nvidia-smi for the GPUs with `uuids`."""

    def __init__(self, uuids: Sequence[str] = ()) -> None:
        self._uuids = uuids[:MAX_ACCELERATORS]  # more the registry wouldn't hear
        self._before: LoadReading | None = None

    async def look(self) -> MachineLoad | None:
        """How busy the machine was since the last look; None at the first."""
        before, self._before = self._before, await asyncio.to_thread(read_load)
        return None if before is None else load_between(before, self._before, await self._gpus())

    async def _gpus(self) -> list[GpuLoad]:
        return parse_gpu_loads(await ask_nvidia_smi(_GPU_FIELDS), self._uuids) if self._uuids else []


def read_load() -> LoadReading:
    """The counters of now: of this agent's cgroup where that has limits, else of the machine."""
    limit, memory, allowed = cpu_limit(), psutil.virtual_memory(), memory_limit()
    if limit is not None:
        cores, busy_s, total_s = limit.cores, limit.used_s, limit.cores * time.monotonic()
    else:
        cores, busy_s, total_s = _read_cores()
    is_limited = allowed is not None and allowed.limit_bytes < memory.total
    used_bytes = allowed.used_bytes if allowed and is_limited else memory.total - memory.available
    total_bytes = allowed.limit_bytes if allowed and is_limited else memory.total
    return LoadReading(cores, busy_s, total_s, own_seconds(), used_bytes, total_bytes)


def _read_cores() -> tuple[float, float, float]:
    """How many cores this process may use, their busy seconds and all their seconds, since the boot."""
    known, usable = psutil.cpu_times(percpu=True), usable_cores()
    read = [busy_seconds(known[core]) for core in usable if core < len(known)]
    return len(usable), sum(busy_s for busy_s, _ in read), sum(total_s for _, total_s in read)


async def keep_told(
    meter: LoadMeter,
    tell: Callable[[MachineLoad], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Looks again and again, and tells of what is known, until cancelled."""
    pause_s = FIRST_LOOK_S
    while True:
        load = await meter.look()
        if load is not None:
            tell(load)
        await sleep(pause_s)
        pause_s = LOOK_INTERVAL_S
