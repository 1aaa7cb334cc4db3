"""What a testbed made, written down before it is made, so that whoever comes next can remove it.

One folder a testbed in /run/peerloom/testbeds, which a restart of the machine empties, as it does with all
that is recorded there. The supervisor holds a lock in it; the lock goes with the process, however that ends,
so a record whose lock is free is of a testbed that nobody will take down any more.

Processes need no record to be found again: each was started in one of the recorded namespaces, and whatever
it started is there too. Their pids and start times are written for people.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from peerloom.errors import FailedPreconditionError, UnavailableError
from peerloom.kit.files import try_lock
from peerloom.testbed.names import RUN_FOLDER, Names

# Others may hold the lock for a blink to look at it, or to remove what a killed testbed left.
_BLINK_S = 0.5
_POLL_S = 0.02


@dataclass(frozen=True)
class Entry:
    """One thing: `kind` is supervisor, state, namespace, container, process or folder.

    A process has its pid, and its `start_time` in the kernel's ticks since boot: together these name one
    process for ever.
    """

    kind: str
    name: str
    pid: int = 0
    start_time: int = 0


class Record:
    """The record of one testbed, locked by us until `close`."""

    def __init__(self, its: Names, descriptor: int) -> None:
        self.names = its
        self._descriptor = descriptor

    @classmethod
    def take(cls, its: Names) -> "Record":
        """Locks the record, made when there is none.

        Raises FailedPreconditionError when its testbed is up, UnavailableError when /run can't be written.
        """
        deadline_s = time.monotonic() + _BLINK_S
        while (descriptor := _try_take(its)) is None:
            if time.monotonic() < deadline_s:
                time.sleep(_POLL_S)
                continue
            raise FailedPreconditionError(
                f"The testbed {its.token} is up already. Stop it with 'peerloom testbed down', or give "
                "another state folder with --state.",
                reason="TESTBED_IS_UP",
            )
        return cls(its, descriptor)

    def write(self, kind: str, name: str, pid: int = 0) -> None:
        """Adds an entry; it survives the death of this process."""
        entry = {"kind": kind, "name": name, "pid": pid, "start_time": start_time_of(pid) if pid else 0}
        with (self.names.run_folder / "record.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def entries(self, kind: str) -> list[Entry]:
        """All of a kind, without repeats, in the order in which they were written."""
        return list(dict.fromkeys(entry for entry in read_entries(self.names) if entry.kind == kind))

    def forget(self) -> None:
        """Removes the record: all that it names is gone."""
        shutil.rmtree(self.names.run_folder, ignore_errors=True)

    def close(self) -> None:
        """Gives the lock back."""
        os.close(self._descriptor)


def _try_take(its: Names) -> int | None:
    try:
        its.run_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(its.run_folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None  # its last holder removed the folder in between
    except OSError as error:
        raise UnavailableError(
            f"{its.run_folder} can't be written ({error.strerror}): a testbed needs root."
        ) from error
    # A file without a name was removed by its last holder, and nobody will find it again.
    if try_lock(descriptor) and os.fstat(descriptor).st_nlink:
        return descriptor
    os.close(descriptor)
    return None


def read_entries(its: Names) -> list[Entry]:
    """What is recorded; a last line that was cut off by a death is passed over."""
    found = []
    with suppress(FileNotFoundError):
        for line in (its.run_folder / "record.jsonl").read_text().splitlines():
            with suppress(ValueError, TypeError):
                found.append(Entry(**json.loads(line)))
    return found


def is_up(its: Names) -> bool:
    """Whether the testbed's supervisor lives."""
    try:
        descriptor = os.open(its.run_folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def wait_until_down(its: Names, timeout_s: float) -> bool:
    """True once the supervisor has ended; False when time ran out."""
    deadline_s = time.monotonic() + timeout_s
    while is_up(its):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def dead_records() -> Iterator[Record]:
    """The records whose supervisors are gone, each locked by us; the caller closes them."""
    folders = sorted(RUN_FOLDER.iterdir()) if RUN_FOLDER.is_dir() else []
    for folder in folders:
        its = Names(folder.name)
        descriptor = _try_take(its)
        if descriptor is not None:
            yield Record(its, descriptor)


def start_time_of(pid: int) -> int:
    """In ticks since boot, as the kernel tells it; 0 for a process that has ended."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return 0
