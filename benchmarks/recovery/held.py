"""What each service of a running system holds while workers die and are replaced, one after the other.

Read after each death, once the newcomer has made steps with the others, so that all readings are of the same
state.
"""

from collections import defaultdict
from collections.abc import Iterator

import psutil

from benchmarks.measure import Measurement
from benchmarks.recovery.growths import Process, Reading, growths
from benchmarks.recovery.running_job import running_system
from benchmarks.recovery.series import replace_workers
from peerloom.embedded import Embedded

STEPS = 15  # between a newcomer's entry and the reading
MEGABYTE = 1e6


def growth_by_deaths(deaths: int, settled: int) -> list[Measurement]:
    """The growth a death of each kind of process, after the first `settled` of `deaths`."""
    readings: dict[Process, list[Reading]] = defaultdict(list)
    with running_system() as (running, system):
        for number in replace_workers(running, deaths, STEPS):
            for kind, process in _processes(system):
                readings[kind, process.pid].append(_read(process, number))
            print(f"   {number} of {deaths} deaths", flush=True)
    return growths(readings, settled, "death and join")


def _processes(system: Embedded) -> Iterator[tuple[str, psutil.Process]]:
    """All services, and what agents fork their workers from."""
    for name, pid in system.pids.items():
        process, is_agent = psutil.Process(pid), name.startswith("node-")
        yield "an agent" if is_agent else f"the {name}", process
        for child in process.children() if is_agent else ():
            if "peerloom.worker" in child.cmdline():
                yield "an agent's fork server", child


def _read(process: psutil.Process, count: int) -> Reading:
    """Memory is all that is resident: what a fork server doesn't share depends on what its workers write."""
    megabytes = process.memory_info().rss / MEGABYTE
    held = {"descriptors": process.num_fds(), "threads": process.num_threads(), "megabytes": megabytes}
    return Reading(count, held)
