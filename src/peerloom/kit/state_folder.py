"""State folders belong to the user who runs the service: nobody else reads what lies in them."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from peerloom.errors import ConfigurationError
from peerloom.kit.logs import get_logger

_log = get_logger()
# What services and a whole system put into their folders. A user may have chosen a folder with files of his
# own in it: their modes are his.
_PARTS = (
    "*.sqlite*", "artifacts", "inference", "lock", "logs", "node.json", "nodes", "probe", "registry",
    "selector", "system.json*", "trainer", "workers",
)  # fmt: skip


def make_private(folder: Path) -> None:
    """Makes the folder where it is missing, and takes it and what services left there from other users.

    Folders become 0700, files 0600. Raises ConfigurationError when it can't be made, or is a folder that all
    users share, such as /tmp.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"the state folder {folder} can't be used: {error}. Choose another with --state."
        ) from error
    if folder.stat().st_mode & stat.S_ISVTX:
        raise ConfigurationError(
            f"the state folder {folder} is one that all users share. Choose one inside it with --state."
        )
    _tighten(folder)
    for pattern in _PARTS:
        for part in folder.glob(pattern):
            for path in _all_below(part):
                _tighten(path)


def _all_below(part: Path) -> Iterator[Path]:
    yield part
    for parent, folders, files in os.walk(part):
        yield from (Path(parent) / name for name in (*folders, *files))


def _tighten(path: Path) -> None:
    with suppress(FileNotFoundError):  # it was temporary
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) or not mode & 0o077:
            return
        try:
            path.chmod(0o700 if stat.S_ISDIR(mode) else 0o600)
        except PermissionError:  # another user's, who lets us write there
            _log.warning("not_private", path=str(path))
