"""A folder as one file, so that a data set or a package can be an artifact; equal files give an equal tar."""

import tarfile
from pathlib import Path

from peerloom.artifacts.disk import disk_errors
from peerloom.errors import DataLossError, InvalidArgumentError


def pack(folder: Path, target: Path) -> None:
    """Writes the folder's files, links followed, to a tar at `target`; times and owners are left out.

    Hidden files and `__pycache__` stay out. Raises InvalidArgumentError for a folder without files,
    ResourceExhaustedError when the disk is full.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_left_out(path, folder))
    if not files:
        raise InvalidArgumentError.of_field("path", str(folder), "a folder with files in it")
    with disk_errors(target.parent), tarfile.open(target, "w", dereference=True) as tar:
        for path in files:
            tar.add(path, str(path.relative_to(folder)), recursive=False, filter=_bare)


def unpack(bundle: Path, folder: Path) -> None:
    """Writes a bundle's files into `folder`. Raises DataLossError for what isn't one, or reaches outside."""
    try:
        with disk_errors(folder), tarfile.open(bundle, "r:") as tar:
            tar.extractall(folder, filter="data")
    except tarfile.TarError as error:
        raise DataLossError(f"The bundle can't be unpacked: {error}.", reason="BUNDLE_DAMAGED") from error


def is_bundle(path: Path) -> bool:
    """Whether a file is one; a compressed tar is not, and stays the file that it is."""
    try:
        with tarfile.open(path, "r:"):
            return True
    except tarfile.TarError:
        return False


def _is_left_out(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(folder).parts)


def _bare(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
    member.mode = 0o644
    return member
