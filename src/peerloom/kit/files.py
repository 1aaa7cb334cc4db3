"""What files need and systems do differently: locks that end with their holder, bytes at a place, room.

The SDK and the command line run where Python does; nothing here may need more than that to be imported.
"""

import errno
import os
import shutil
import threading
from importlib import import_module
from pathlib import Path

_NOT_OFFERED = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENXIO}
# Windows locks bytes, not files, and against reading too: one beyond the end of our files (8 TiB).
_LOCKED_BYTE = 2**43
_TAKEN = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}
_seeking = threading.Lock()
MOVES_OPEN_FILES = os.name != "nt"


def open_for_update(path: Path, mode: int = 0o600) -> int:
    """The descriptor of a file, which is made if it isn't there; processes started from here don't get it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), mode)


def try_lock(descriptor: int) -> bool:
    """Whether the file is locked for us now; False while another process has the lock.

    The lock ends when the descriptor is closed by all processes that have it, or they end.
    """
    try:
        import fcntl
    except ImportError:
        return _try_lock_byte(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_at(descriptor: int, data: memoryview, offset_bytes: int) -> int:
    """Writes bytes at a place; how many were written. Safe for threads."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset_bytes)
    with _seeking:
        os.lseek(descriptor, offset_bytes, os.SEEK_SET)
        return os.write(descriptor, data)


def read_at(descriptor: int, size_bytes: int, offset_bytes: int) -> bytes:
    """Reads at most so many bytes from a place; fewer at the file's end. Safe for threads."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size_bytes, offset_bytes)
    with _seeking:
        os.lseek(descriptor, offset_bytes, os.SEEK_SET)
        return os.read(descriptor, size_bytes)


def check_free(descriptor: int, folder: Path, size_bytes: int) -> None:
    """Raises OSError when `folder`'s disk hasn't the room that an open file in it needs to grow so large."""
    here_bytes = getattr(os.fstat(descriptor), "st_blocks", 0) * 512
    if size_bytes - here_bytes > shutil.disk_usage(folder).free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def has_data(descriptor: int, offset_bytes: int, size_bytes: int) -> bool:
    """Whether something was written in a part of a file; True where the system can't tell."""
    if not hasattr(os, "SEEK_DATA"):
        return True
    try:
        begin = os.lseek(descriptor, offset_bytes, os.SEEK_DATA)
    except OSError as error:
        if error.errno in _NOT_OFFERED:  # ENXIO: nothing but a hole up to the end
            return error.errno != errno.ENXIO
        raise
    return begin < offset_bytes + size_bytes


def sync_folder(folder: Path) -> None:
    """Makes renames in `folder` survive a power cut, where a folder can be opened for that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _try_lock_byte(descriptor: int) -> bool:
    windows = import_module("msvcrt")
    with _seeking:
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            windows.locking(descriptor, windows.LK_NBLCK, 1)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            return False
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)
    return True
