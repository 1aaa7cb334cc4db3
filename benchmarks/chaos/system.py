"""The processes of the system under chaos, found by what they inherited and how they were called."""

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MARK = "PEERLOOM_CHAOS"
COORDINATORS = ("registry", "selector", "trainer")


@dataclass(frozen=True)
class Part:
    """A process: a coordinator or an agent by its name, a worker by its node's."""

    name: str
    process: psutil.Process
    is_worker: bool = False


@dataclass
class Parts:
    """All processes with our mark; `seen` remembers each one that ever was."""

    token: str = field(default_factory=lambda: secrets.token_hex(8))
    seen: set[psutil.Process] = field(default_factory=set)

    def mark(self) -> None:
        """Whatever is started from now on is found."""
        os.environ[MARK] = self.token

    def processes(self) -> list[psutil.Process]:
        """All that are there now but this one."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and process.environ().get(MARK) == self.token:
                    found.append(process)
            except psutil.Error:
                continue
        self.seen.update(found)
        return found

    def find(self) -> list[Part]:
        """Coordinators, agents and the workers that have a job, in a fixed order."""
        parts = []
        for process in self.processes():
            try:
                part = _part(process)
            except (psutil.Error, OSError):
                continue  # it has just ended
            parts += [part] if part is not None else []
        return sorted(parts, key=lambda part: (part.name, part.process.pid))

    def addresses(self) -> set[tuple[str, int]]:
        """Where the system listens on this machine's own interfaces."""
        found: set[tuple[str, int]] = set()
        for process in self.processes():
            try:
                connections = process.net_connections("tcp")
            except psutil.Error:
                continue
            listening = [one.laddr for one in connections if one.status == psutil.CONN_LISTEN]
            found |= {(address[0], address[1]) for address in listening if address}
        return found


def _part(process: psutil.Process) -> Part | None:
    words = process.cmdline()
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    service = module.removeprefix("peerloom.services.")
    if service in COORDINATORS:
        return Part(service, process)
    if service == "node_agent":
        return Part(words[words.index("--name") + 1], process)
    if module == "peerloom.worker":
        # One that has a job writes to its log, .../NODE/logs/JOB/WORKER.log; what it is forked from, nowhere.
        output = Path(os.readlink(f"/proc/{process.pid}/fd/1"))
        if output.name.startswith("worker-"):
            return Part(output.parents[2].name, process, is_worker=True)
    return None
