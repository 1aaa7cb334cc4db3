"""Programs of a testbed run as users without rights, each as its own, though root starts them.

Such a user can't enter root's home, where the interpreter, the packages or the state folder may lie. So a
program sees, in a view of the files that is its own, an almost empty folder there, with what it needs below.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from peerloom.sandbox.readable import interpreter_files
from peerloom.testbed import namespaces

# systemd keeps these for users that nobody has; they need no entry anywhere.
FIRST_USER, _USERS = 61_184, 4336
_NEW_VIEW, _BIND, _RECURSIVE, _SLAVE = 0x20000, 0x1000, 0x4000, 0x80000


@dataclass(frozen=True)
class ProgramUser:
    """Who a program runs as: the `number`th of a testbed's, whose folder is `folder`."""

    number: int
    folder: Path

    @property
    def user_id(self) -> int:
        """Also the id of its group, the only one that it is in."""
        return FIRST_USER + self.number % _USERS

    def command(self, command: Iterable[str]) -> tuple[str, ...]:
        """Runs the command as this user, who has no capabilities and gets none by any program."""
        who = (f"--reuid={self.user_id}", f"--regid={self.user_id}", "--clear-groups")
        return ("setpriv", *who, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--", *command)

    @property
    def environment(self) -> dict[str, str]:
        """What programs ask for a user's name and folders; torch does."""
        return {
            "HOME": str(self.folder),
            "USER": "peerloom",
            "LOGNAME": "peerloom",
            "TMPDIR": "/tmp",
            "XDG_CACHE_HOME": str(self.folder),
        }

    def own(self) -> None:
        """Makes the folder, and gives it with all that is in it to this user."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (self.folder, *self.folder.rglob("*")):
            os.chown(path, self.user_id, self.user_id, follow_symlinks=False)

    def enter_view(self) -> None:
        """Moves the calling thread, for good, to a view in which this user gets to all that it needs.

        Raises FailedPreconditionError where the kernel refuses.
        """
        python = interpreter_files()
        needed = sorted({os.path.realpath(self.folder), *python.reads, *map(os.path.realpath, python.reads)})
        closed = {path: barrier for path in needed if (barrier := _barrier(path)) and os.path.exists(path)}
        namespaces.call("unshare", _NEW_VIEW)
        namespaces.mount("none", Path("/"), _RECURSIVE | _SLAVE)  # else all would see what comes next
        with ExitStack() as opened:
            # By descriptors, as their names will be covered.
            held = {path: os.open(path, os.O_PATH) for path in closed}
            for descriptor in held.values():
                opened.callback(os.close, descriptor)
            for barrier in sorted(set(closed.values())):
                namespaces.mount("none", barrier, 0, kind="tmpfs", options="mode=755")
            for path, descriptor in held.items():
                _show(Path(path), descriptor)


def _barrier(path: str) -> Path | None:
    """The uppermost folder on the way to it that not everybody may enter, if there is one."""
    return next((folder for folder in _way_to(Path(path)) if not _is_open(folder)), None)


def _way_to(path: Path) -> Iterator[Path]:
    yield from reversed(path.parents)


def _is_open(folder: Path) -> bool:
    return not folder.exists() or bool(folder.stat().st_mode & stat.S_IXOTH)


def _show(path: Path, descriptor: int) -> None:
    is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    if path.exists():  # it lies below one that is shown
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if is_folder:
        path.mkdir(mode=0o755)
    else:
        path.touch()
    namespaces.mount(f"/proc/self/fd/{descriptor}", path, _BIND | _RECURSIVE)
