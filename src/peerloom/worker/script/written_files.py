"""What ranks write into folders of their own, put together as a disk that they share would have it.

Files are named by their place below the folder, with "/" between its parts.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath

from peerloom.artifacts.bundles import packed_files

FileStates = dict[str, tuple[int, int]]
_METADATA, _PART = ".metadata", re.compile(rb"__\d+_\d+\.distcp")  # of torch.distributed.checkpoint


def files_in(folder: Path) -> dict[str, Path]:
    """The files below a folder that a bundle takes, hidden ones too."""
    return {path.relative_to(folder).as_posix(): path for path in packed_files(folder, hidden=True)}


def states_of(files: Mapping[str, Path]) -> FileStates:
    """Size and time of each. Raises OSError for one that is gone."""
    statuses = {name: path.stat() for name, path in files.items()}
    return {name: (status.st_size, status.st_mtime_ns) for name, status in statuses.items()}


def changed(now: FileStates, began: FileStates) -> set[str]:
    """The files that were written since."""
    return {name for name, state in now.items() if began.get(name) != state}


def together(
    own: Mapping[str, Path], own_changed: Collection[str], others: Sequence[Mapping[str, Path]]
) -> dict[str, Path]:
    """Rank 0's files with what the `others` wrote, in the order of their ranks.

    Of one name the lowest rank's counts, of those who wrote it. What lies in a folder that rank 0 hasn't got,
    or has removed, stays out.
    """
    found = dict(own)
    folders = {".", *(_parent(name) for name in own)}
    for files in reversed(others):
        for name, path in files.items():
            if name not in own_changed and _parent(name) in folders:
                found[name] = path
    return found


def is_complete(files: Mapping[str, Path]) -> bool:
    """Whether no checkpoint of torch.distributed.checkpoint lacks a part that its metadata name.

    They are a pickle, which is searched for names and never loaded. Raises OSError for one that is gone.
    """
    named = (
        str(PurePosixPath(name).with_name(part.decode()))
        for name, path in files.items()
        if path.name == _METADATA
        for part in _PART.findall(path.read_bytes())
    )
    return all(part in files for part in named)


def _parent(name: str) -> str:
    return str(PurePosixPath(name).parent)
