"""cgroups: the kernel's limits for a process and all that it starts, counted together, and their end.

A `CgroupParent` belongs to one agent and holds one `Cgroup` for each process that works for others. Of
version 1 a group is a folder in each of two trees, of version 2 one folder.
"""

import os
import secrets
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from peerloom.sandbox.cgroup_places import CgroupPlaces, find_places

_PREFIX = "peerloom-"
_AGENT = _PREFIX + "agent"  # of version 2: a group whose members have limits has no processes of its own
_ENABLE = "+memory +pids"
# A process that was killed is gone in milliseconds, unless a disk keeps it.
_END_LIMIT_S, _END_PAUSE_S = 5.0, 0.002


@dataclass(frozen=True)
class GroupLimits:
    """What a process and all that it starts may use: bytes of memory, processes and threads; 0: any."""

    memory_bytes: int = 0
    tasks: int = 0


class Cgroup:
    """One group. Every method may block for milliseconds, and raises OSError where the kernel refuses."""

    def __init__(self, places: CgroupPlaces, limits: GroupLimits) -> None:
        self._places, self._limits = places, limits
        for folder in places.folders:
            folder.mkdir()
        self._set_limits()

    def add(self, pid: int) -> None:
        """Moves a process here; what it starts from now on is here too."""
        for folder in self._places.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def end(self) -> str:
        """Kills all in it and removes it; says what the kernel had killed for, or "" if none."""
        outgrown = self._outgrown()
        _end(self._places.folders)
        return outgrown

    def _outgrown(self) -> str:
        file = "memory.events" if self._places.is_v2 else "memory.oom_control"
        with suppress(OSError):
            words = (self._places.memory / file).read_text().split()
            if int(dict(zip(words[::2], words[1::2], strict=False)).get("oom_kill", "0")):
                return (
                    f"it used more than the {self._limits.memory_bytes:,} bytes of memory that its node lets "
                    "one worker have with all that it starts. Make batches or the model smaller, or ask for "
                    "nodes that lend more"
                )
        return ""

    def _set_limits(self) -> None:
        memory, pids, limits = self._places.memory, self._places.pids, self._limits
        if limits.tasks:
            (pids / "pids.max").write_text(str(limits.tasks))
        if not limits.memory_bytes:
            return
        text = str(limits.memory_bytes)
        if self._places.is_v2:
            (memory / "memory.max").write_text(text)
            (memory / "memory.oom.group").write_text("1")  # a part of a worker is of no use
        else:
            (memory / "memory.limit_in_bytes").write_text(text)
        # Not on the owner's disk either, where the kernel counts that.
        with suppress(OSError):
            name, swap = (
                ("memory.swap.max", "0") if self._places.is_v2 else ("memory.memsw.limit_in_bytes", text)
            )
            (memory / name).write_text(swap)


class CgroupParent:
    """The groups of the agent whose state lies in `state`; a note there says where they are."""

    def __init__(self, places: CgroupPlaces, state: Path) -> None:
        """Removes what a dead agent of this folder left, and makes room. Raises OSError where it can't."""
        name = f"{_PREFIX}{secrets.token_hex(8)}"
        self._places = CgroupPlaces(places.memory / name, places.pids / name)
        note = state / "cgroups"
        remove_left(note)
        # First the note: whoever dies in between leaves nothing that nobody knows of.
        note.touch(mode=0o600)
        note.write_text("".join(f"{folder}\n" for folder in self._places.folders))
        if places.is_v2:
            _divide(places.memory)
        for folder in self._places.folders:
            folder.mkdir()
        if places.is_v2:
            (self._places.memory / "cgroup.subtree_control").write_text(_ENABLE)

    def group(self, limits: GroupLimits) -> Cgroup:
        """A new group without members. Raises OSError."""
        name = secrets.token_hex(8)
        return Cgroup(CgroupPlaces(self._places.memory / name, self._places.pids / name), limits)

    def close(self) -> None:
        """Ends all groups."""
        for folder in self._places.folders:
            _end_below(folder)


def open_parent(state: Path) -> tuple[CgroupParent | None, str]:
    """Room for the groups of the agent of this state folder, or None with what is missing. May block."""
    places, why_not = find_places()
    if places is None:
        return None, why_not
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        return CgroupParent(places, state), ""
    except OSError as error:
        return None, _describe(error, places)


def why_no_cgroups() -> str:
    """What keeps this very process from having groups, found by trying; empty when nothing does."""
    places, why_not = find_places()
    if places is None:
        return why_not
    tried = [folder / f"{_PREFIX}{secrets.token_hex(8)}" for folder in places.folders]
    try:
        if places.is_v2:
            _refuse_others(places.memory)
        for folder in tried:
            folder.mkdir()
    except OSError as error:
        return _describe(error, places)
    finally:
        for folder in tried:
            with suppress(OSError):
                folder.rmdir()
    return ""


def remove_left(note: Path) -> None:
    """Ends what a dead agent left, by its note; other folders than such as ours are let be."""
    with suppress(OSError):
        for line in note.read_text().splitlines():
            folder = Path(line)
            if folder.name.startswith(_PREFIX) and folder.is_dir():
                _end_below(folder)


def _divide(own: Path) -> None:
    """Lets groups below one's own have limits, for which this process moves into one of them."""
    if _ENABLE.replace("+", "").split() == (own / "cgroup.subtree_control").read_text().split():
        return
    is_root = not (own / "cgroup.type").exists()
    if not is_root:
        _refuse_others(own)
        (own / _AGENT).mkdir(exist_ok=True)
        (own / _AGENT / "cgroup.procs").write_text(str(os.getpid()))
    (own / "cgroup.subtree_control").write_text(_ENABLE)


def _refuse_others(own: Path) -> None:
    if (own / "cgroup.type").exists() and set(_members(own)) - {os.getpid()}:
        raise OSError("other processes are in the agent's own cgroup")


def _describe(error: OSError, places: CgroupPlaces) -> str:
    return f"{places.memory}: {error.strerror or error}; give the agent a cgroup of its own (Delegate=yes)"


def _end_below(folder: Path) -> None:
    with suppress(OSError):
        for one in folder.iterdir():
            if one.is_dir():
                _end([one])
    _end([folder])


def _end(folders: Iterable[Path]) -> None:
    """Kills what is in these folders until they can be removed, or for 5 s: the next agent tries again."""
    waiting, deadline_s = [folder for folder in folders if folder.is_dir()], time.monotonic() + _END_LIMIT_S
    while waiting and time.monotonic() < deadline_s:
        for folder in waiting:
            _kill(folder)
        waiting = [folder for folder in waiting if not _is_removed(folder)]
        if waiting:
            time.sleep(_END_PAUSE_S)


def _kill(folder: Path) -> None:
    with suppress(OSError):
        (folder / "cgroup.kill").write_text("1")  # version 2, from Linux 5.14
        return
    with suppress(OSError):
        (folder / "pids.max").write_text("0")  # else who forks fast enough is never seen whole
    for pid in _members(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _members(folder: Path) -> list[int]:
    try:
        found = [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []
    return [pid for pid in found if pid]  # 0 is who isn't to be seen from here


def _is_removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
