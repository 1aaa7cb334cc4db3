"""The state folder of a system: its lock, and the note that says where the system can be reached.

The lock (flock on STATE/lock) is held by the supervisor and, by inheritance, by every child. It is free
only when the last of them has ended, so a free lock proves that no process was left behind.
"""

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from peerloom.errors import FailedPreconditionError, UnavailableError
from peerloom.kit.files import open_for_update, try_lock
from peerloom.kit.state_folder import make_private

# Another may hold the lock for a blink to look at it; children of a killed supervisor need a moment to end.
_BLINK_S = 0.5
_DYING_S = 30.0
_POLL_S = 0.05


@dataclass(frozen=True)
class SystemNote:
    """What STATE/system.json says of the system that is up: addresses are host:port by process name.

    `metrics` has those where Prometheus reads metrics, if it may; `dashboard` is a URL, "" without one.
    """

    registry: str
    pid: int
    services: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    dashboard: str = ""


class StateFolder:
    """One system's folder; created when it is locked."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self._lock_path = self.path / "lock"
        self._note_path = self.path / "system.json"

    def log_path(self, name: str) -> Path:
        """The log file of the process of this name."""
        return self.path / "logs" / f"{name}.log"

    def lock(self) -> int:
        """Locks the folder; returns the descriptor, and closing it (by all who have it) unlocks.

        Raises FailedPreconditionError when another system uses it, UnavailableError when it can't be written.
        """
        try:
            make_private(self.path)
            (self.path / "logs").mkdir(mode=0o700, exist_ok=True)
            descriptor = open_for_update(self._lock_path)
        except OSError as error:
            raise UnavailableError(
                f"The state folder {self.path} can't be written ({error.strerror}). "
                "Make it writable, or choose another with --state."
            ) from error
        try:
            self._wait_for_lock(descriptor)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _wait_for_lock(self, descriptor: int) -> None:
        start_s = time.monotonic()
        while not try_lock(descriptor):
            waited_s = time.monotonic() - start_s
            owner = self._written_pid()
            if waited_s > (_BLINK_S if owner and _is_alive(owner) else _DYING_S):
                raise FailedPreconditionError(
                    f"The state folder {self.path} is in use by process {owner}. Stop that system with "
                    f"'peerloom down --state {self.path}', or choose another folder with --state.",
                    reason="STATE_IN_USE",
                    metadata={"pid": str(owner), "state": str(self.path)},
                )
            time.sleep(_POLL_S)

    def owner(self) -> int | None:
        """The pid of the supervisor whose system uses the folder; None when nobody does."""
        try:
            descriptor = os.open(self._lock_path, os.O_RDWR)
        except OSError:
            return None
        try:
            return None if try_lock(descriptor) else self._written_pid()
        finally:
            os.close(descriptor)

    def wait_until_free(self, timeout_s: float) -> bool:
        """True once the last process of the system has ended; False when time ran out."""
        deadline_s = time.monotonic() + timeout_s
        while self.owner() is not None:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_POLL_S)
        return True

    def _written_pid(self) -> int:
        with suppress(OSError, ValueError):
            return int(self._lock_path.read_text())
        return 0

    def write_note(self, note: SystemNote) -> None:
        """Tells others where the system is; they see the old note or the new one, never half of it."""
        fresh = self._note_path.with_suffix(".json.new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(json.dumps(asdict(note), indent=2) + "\n")
        fresh.replace(self._note_path)

    def read_note(self) -> SystemNote | None:
        """The note, None when there is none that can be read."""
        try:
            return SystemNote(**json.loads(self._note_path.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def remove_note(self) -> None:
        """Takes the note away; without one, nobody looks for the system here."""
        self._note_path.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    import psutil  # here, because it is slow to import, and seldom asked

    return psutil.pid_exists(pid)
