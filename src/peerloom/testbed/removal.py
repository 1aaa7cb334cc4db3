"""Removes what a record names, in an order in which nothing can come back."""

import os
import shutil
import signal
import time
from contextlib import suppress

from peerloom.errors import UnavailableError
from peerloom.testbed import namespaces
from peerloom.testbed.testbed_record import Record, dead_records

_DEATH_LIMIT_S = 10.0
_POLL_S = 0.02


def remove_all(record: Record) -> int:
    """Removes everything of one testbed and its record; returns how many things there were.

    Every process in its namespaces is killed. Raises UnavailableError when one doesn't go, or when Docker
    can't be asked: the record stays then, and the next attempt finds it.
    """
    count = _remove_containers(record)
    spaces = [entry.name for entry in record.entries("namespace")]
    count += kill_inhabitants(spaces)
    count += sum(namespaces.remove(name) for name in spaces)
    for entry in record.entries("folder"):
        shutil.rmtree(entry.name, ignore_errors=True)
    record.forget()
    return count


def remove_dead() -> int:
    """Removes what killed testbeds left; returns how many things there were. Living ones aren't touched."""
    count = 0
    for record in dead_records():
        try:
            count += remove_all(record)
        finally:
            record.close()
    return count


def _remove_containers(record: Record) -> int:
    recorded = [entry.name for entry in record.entries("container")]
    if not recorded:
        return 0
    from peerloom.testbed.containers import Engine

    with Engine() as engine:
        return engine.remove(recorded)


def kill_inhabitants(spaces: list[str]) -> int:
    """Ends every process in these namespaces by SIGKILL, and waits for it; returns how many there were."""
    seen: set[int] = set()
    deadline_s = time.monotonic() + _DEATH_LIMIT_S
    while left := [pid for name in spaces for pid in namespaces.inhabitants(name)]:
        if time.monotonic() > deadline_s:
            raise UnavailableError(
                f"The processes {', '.join(map(str, left))} don't end, even killed; try again later."
            )
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        seen.update(left)
        time.sleep(_POLL_S)
    return len(seen)
