"""Which process this is, and whether another one is provably dead: asked of the machine, not of a clock."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

_ZOMBIE, _DEAD = "Z", "X"


@dataclass(frozen=True)
class ProcessIdentity:
    """One process among all that ever ran; what a machine can't tell is empty."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: str

    def text(self) -> str:
        """For a database's column."""
        return "\n".join((self.host, self.boot, self.namespace, str(self.pid), self.started))

    @classmethod
    def of_text(cls, text: str) -> "ProcessIdentity":
        """What `text` made."""
        host, boot, namespace, pid, started = text.split("\n")
        return cls(host, boot, namespace, int(pid), started)


def this_process() -> ProcessIdentity:
    """The identity of the process that asks."""
    pid = os.getpid()
    return ProcessIdentity(socket.gethostname(), _boot(), _namespace(), pid, _started(pid) or "")


def is_provably_dead(process: ProcessIdentity) -> bool:
    """Whether the process ran on this machine since its start, within our sight, and is no more.

    False for whatever can't be seen from here: it may live.
    """
    here = this_process()
    if (process.host, process.boot, process.namespace) != (here.host, here.boot, here.namespace):
        return False
    if not psutil.pid_exists(process.pid):
        return True
    started = _started(process.pid)
    return started is not None and started != process.started


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(round(psutil.boot_time()))


def _namespace() -> str:
    # Two containers of one machine may have processes of the same number.
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process began, as a word to compare.

    It is empty for a dead process that is still listed, and None where it can't be told.
    """
    if Path("/proc/self/stat").exists():
        return _started_in_ticks(pid)
    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else repr(process.create_time())
    except psutil.Error:
        return None


def _started_in_ticks(pid: int) -> str | None:
    # Linux counts ticks since the boot; what psutil makes of them moves when the clock is set.
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in (_ZOMBIE, _DEAD) else fields[19]
