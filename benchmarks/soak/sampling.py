"""What the system's processes hold: memory, descriptors and threads of each life; and each service's disk.

Threads are those beside the pools, which keep what they once needed and have a size. Descriptors are those
beside connections, of which there may be one to each other part: how many there are to one address is told by
itself.
"""

import os
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.chaos.system import COORDINATORS, Parts
from benchmarks.repeating import Repeating
from benchmarks.soak.connections import connections
from benchmarks.soak.growth import Reading
from peerloom.kit.thread_pools import POOLS

SAMPLE_S = 5.0
MEGABYTE = 1e6
AGENT = "agent"
Life = tuple[str, int, float]  # a service's kind, the process's pid, and when it began
HELD = ("memory", "descriptors", "threads")


class Sampler(Repeating):
    """Reads every few seconds while the context lasts. Times count from its making."""

    def __init__(self, parts: Parts, folder: Path) -> None:
        super().__init__("sampler", SAMPLE_S)
        self._parts, self._folder = parts, folder
        self._began_s = time.monotonic()
        self._read: dict[str, dict[Life, list[Reading]]] = {what: defaultdict(list) for what in HELD}
        self.disk: dict[str, list[Reading]] = defaultdict(list)
        self.most_connections: dict[str, int] = defaultdict(int)  # of a process to one address, by kind

    def lives(self, what: str) -> Mapping[str, list[list[Reading]]]:
        """What was read of each kind of service: of each of its lives all readings."""
        found: dict[str, list[list[Reading]]] = defaultdict(list)
        for (kind, _, _), readings in self._read[what].items():
            found[kind].append(readings)
        return found

    def act(self) -> None:
        """One reading of each."""
        at_s = time.monotonic() - self._began_s
        for part in self._parts.find():
            if not part.is_worker:
                self._look(_kind(part.name), part.process, at_s)
        for name, size in _sizes(self._folder).items():
            self.disk[name].append(Reading(at_s, size / MEGABYTE))

    def _look(self, kind: str, process: psutil.Process, at_s: float) -> None:
        try:
            with process.oneshot():
                life = (kind, process.pid, process.create_time())
                connected = connections(process.pid)
                held = (
                    process.memory_info().rss / MEGABYTE,
                    process.num_fds() - connected.total(),
                    threads_beside_pools(process.pid),
                )
        except (psutil.Error, OSError):
            return  # it has just ended
        self.most_connections[kind] = max(self.most_connections[kind], *connected.values(), 0)
        for what, value in zip(HELD, held, strict=True):
            self._read[what][life].append(Reading(at_s, float(value)))


def threads_beside_pools(pid: int) -> int:
    """How many threads a process has that belong to none of the services' pools."""
    names = []
    for thread in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(OSError):  # it has just ended
            names.append(thread.read_text().strip())
    return sum(name not in POOLS for name in names)


def _kind(name: str) -> str:
    return AGENT if name.startswith("node-") else name


def _sizes(folder: Path) -> dict[str, int]:
    """Bytes below each service's folder, those of all agents together."""
    sizes: dict[str, int] = defaultdict(int)
    for parent, _, names in os.walk(folder):
        kinds = [_kind(name) for name in Path(parent).relative_to(folder).parts]
        kind = next((kind for kind in kinds if kind in (*COORDINATORS, AGENT)), "")
        for name in names if kind else ():
            with suppress(OSError):  # it was just removed
                sizes[kind] += os.lstat(os.path.join(parent, name)).st_size
    return sizes
