"""Network namespaces, by the kernel's own calls.

A thread can be in another namespace than its process. So whatever must happen inside one, opening sockets or
starting processes, which inherit it, happens in a short-lived thread of its own; the process never moves.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from peerloom.errors import FailedPreconditionError, NotFoundError
from peerloom.testbed.names import NAMESPACE_FOLDER

T = TypeVar("T")
_NEW_NETWORK, _BIND, _RECURSIVE, _SHARED, _DETACH = 0x40000000, 0x1000, 0x4000, 0x100000, 2
_libc = ctypes.CDLL(None, use_errno=True)


def path_of(name: str) -> Path:
    """Where a namespace is found by its name; `ip netns` looks there too."""
    return NAMESPACE_FOLDER / name


def create(name: str) -> None:
    """Makes a namespace that lasts until `remove`. Raises FailedPreconditionError when it can't."""

    def unshare() -> None:
        call("unshare", _NEW_NETWORK)
        mount(f"/proc/self/task/{threading.get_native_id()}/ns/net", path, _BIND)

    path = _prepare(name)
    _in_thread(unshare)


def attach(name: str, pid: int) -> None:
    """Gives the namespace of a process a name, by which it lasts until `remove`."""
    mount(f"/proc/{pid}/ns/net", _prepare(name), _BIND)


def exists(name: str) -> bool:
    """Whether there is one of this name."""
    return path_of(name).exists()


def remove(name: str) -> bool:
    """Takes the name away, and with it the namespace once nobody is inside; False if there was none."""
    path = path_of(name)
    if not path.exists():
        return False
    while _libc.umount2(os.fsencode(path), _DETACH) == 0:
        pass  # a name that was mounted over twice by a killed attempt
    with suppress(FileNotFoundError):
        path.unlink()
    return True


def inside(name: str, work: Callable[[], T]) -> T:
    """What `work` returns or raises, called in the namespace. Raises NotFoundError when there is none."""
    return _in_thread(lambda: _enter_and(name, work))


def enter(name: str) -> None:
    """Moves the calling thread there, for good: for threads of one purpose."""
    try:
        descriptor = os.open(path_of(name), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NotFoundError(f"There is no network namespace {name!r}.") from error
    try:
        call("setns", descriptor, _NEW_NETWORK)
    finally:
        os.close(descriptor)


def inhabitants(name: str) -> list[int]:
    """The pids of the processes inside; none when there is no such namespace."""
    try:
        wanted = os.stat(path_of(name))
    except OSError:
        return []
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):
                seen = os.stat(f"/proc/{entry}/ns/net")
                if (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino):
                    found.append(int(entry))
    return found


def _enter_and(name: str, work: Callable[[], T]) -> T:
    enter(name)
    return work()


def _prepare(name: str) -> Path:
    NAMESPACE_FOLDER.mkdir(parents=True, exist_ok=True)
    if _try("mount", b"", os.fsencode(NAMESPACE_FOLDER), b"none", _SHARED | _RECURSIVE, None):
        # It is no mount point yet. As `ip netns` does: mounts below it must reach those who have a copy of
        # the file system's tree, such as Docker.
        mount(str(NAMESPACE_FOLDER), NAMESPACE_FOLDER, _BIND | _RECURSIVE)
        mount("", NAMESPACE_FOLDER, _SHARED | _RECURSIVE)
    path = path_of(name)
    remove(name)
    path.touch(mode=0o444)
    return path


def mount(source: str, target: Path, flags: int, *, kind: str = "none", options: str = "") -> None:
    """What mount(2) does, in the view of the calling thread. Raises FailedPreconditionError."""
    more = options.encode() or None
    call("mount", os.fsencode(source), os.fsencode(target), kind.encode(), flags, more)


def call(function: str, *arguments: object) -> None:
    """Calls the kernel. Raises FailedPreconditionError where it refuses."""
    number = _try(function, *arguments)
    if number:
        raise FailedPreconditionError(
            f"The kernel refused to {function} for a namespace: {os.strerror(number)}. "
            "It needs root with all its capabilities.",
            reason="NAMESPACE_REFUSED",
        )


def _try(function: str, *arguments: object) -> int:
    """0, or the number of the error."""
    return 0 if getattr(_libc, function)(*arguments) == 0 else ctypes.get_errno()


def _in_thread(work: Callable[[], T]) -> T:
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="namespace")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
