"""The processor time that each process of a system, or of a rival, takes: who takes what from training."""

import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

import psutil

WORKERS = "workers"


class ProcessorTime:
    """Counts from its making; `pids` are processes by name, and all that they started are workers."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._began_s, self._before = time.perf_counter(), seconds_used(pids)

    def share_beside_workers(self) -> float:
        """Of one core, what all but the workers have taken since it was made."""
        used = self.ms_a_step(1.0)
        return sum(ms for name, ms in used.items() if name != WORKERS) / 1000

    def ms_a_step(self, step_s: float) -> dict[str, float]:
        """Milliseconds by name since it was made, a step of `step_s` seconds; of the workers together."""
        steps = (time.perf_counter() - self._began_s) / step_s
        now, before = seconds_used(self._pids), self._before
        return {name: 1000 * (seconds - before.get(name, 0.0)) / steps for name, seconds in now.items()}


def seconds_used(pids: Mapping[str, int]) -> dict[str, float]:
    """Seconds so far by name, without its number; of all that these processes started, as workers."""
    used: dict[str, float] = defaultdict(float)
    started = set[psutil.Process]()
    for name, pid in pids.items():
        process = psutil.Process(pid)
        used[name.rstrip("-0123456789")] += _seconds(process)
        started.update(process.children(recursive=True))
    for child in started:  # one of these processes may have started the others
        if child.pid not in pids.values():
            with suppress(psutil.NoSuchProcess):
                used[WORKERS] += _seconds(child)
    return used


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
