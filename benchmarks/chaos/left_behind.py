"""What a system leaves behind that shouldn't be: processes, listeners, tracebacks in its logs."""

import socket
from collections.abc import Iterable
from pathlib import Path

import psutil

from benchmarks.chaos.system import Parts

ENDS_WITHIN_S = 15.0
_SHOWN = 800  # characters before a traceback, and half of those after it


def left_behind(parts: Parts, addresses: Iterable[tuple[str, int]]) -> list[str]:
    """Processes that are still there some seconds after the end, and addresses where somebody listens."""
    _, alive = psutil.wait_procs(parts.processes(), timeout=ENDS_WITHIN_S)
    found = [f"process {process.pid} is left: {process.name()}" for process in alive]
    for host, port in sorted(addresses):
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                found.append(f"somebody still listens at {host}:{port}")
    return found


def tracebacks(folder: Path) -> list[str]:
    """The first of each log below the folder."""
    broken = []
    for log in folder.rglob("*.log"):
        before, found, after = log.read_text(errors="replace").partition("Traceback")
        if found:
            excerpt = f"{before[-_SHOWN:]}{found}{after[: 2 * _SHOWN]}"
            broken.append(f"a traceback in {log.relative_to(folder)}:\n{excerpt}")
    return broken
