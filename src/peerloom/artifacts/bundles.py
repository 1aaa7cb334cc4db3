"""A folder as one file, so that a data set or a package can be an artifact; equal files give an equal tar.

A bundle comes from strangers. Only its regular files and folders are taken, under names that were checked
here, and they are written here: tarfile reads headers, and nothing else.
"""

import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, cast

from peerloom.artifacts.disk import disk_errors
from peerloom.errors import DataLossError, InvalidArgumentError
from peerloom.kit.limits import MAX_ARTIFACT_BYTES

MEMBERS_LIMIT = 250_000
NAME_LIMIT_BYTES, PART_LIMIT_BYTES, DEPTH_LIMIT = 1024, 255, 32
# What tarfile may read for one member: it holds long names and maps of holes in memory.
_HEADERS_LIMIT_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 20
_UNREADABLE = (tarfile.TarError, ValueError, OverflowError, RecursionError)


def pack(folder: Path, target: Path, hidden: bool = False) -> None:
    """Writes the folder's files, links followed, to a tar at `target`; times and owners are left out.

    `__pycache__` stays out, and unless asked for what is `hidden`. Raises InvalidArgumentError for a folder
    without files, or with more or with other names than `unpack` takes, ResourceExhaustedError when the disk
    is full.
    """
    files = {path.relative_to(folder).as_posix(): path for path in packed_files(folder, hidden)}
    pack_files(folder, files, target)


def pack_files(folder: Path, files: Mapping[str, Path], target: Path) -> None:
    """As `pack`, of files that lie anywhere, by their names in the bundle; errors name the `folder`."""
    limit = ""
    if not files:
        limit = "a folder with files in it"
    elif len(files) > MEMBERS_LIMIT:
        limit = f"a folder of {MEMBERS_LIMIT:,} files at most"
    elif sum(path.stat().st_size for path in files.values()) > MAX_ARTIFACT_BYTES:
        limit = f"a folder of {MAX_ARTIFACT_BYTES:,} bytes at most"
    if limit:
        raise InvalidArgumentError.of_field("path", str(folder), limit)
    for name, path in files.items():
        if flaw := _flaw_of(name):
            raise InvalidArgumentError(f"The file {str(path)!r} can't be packed: its name {flaw}. Rename it.")
    with disk_errors(target.parent), tarfile.open(target, "w", dereference=True) as tar:
        for name in sorted(files, key=lambda name: name.split("/")):
            tar.add(files[name], name, recursive=False, filter=_bare)


def packed_files(folder: Path, hidden: bool = False) -> Iterator[Path]:
    """The files below a folder that `pack` takes."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if _is_packed(name, hidden)]
        for path in (Path(parent) / name for name in names if _is_packed(name, hidden)):
            if path.is_file():
                yield path


def unpack(bundle: Path, folder: Path) -> None:
    """Writes a bundle's files into `folder`, which is made (0700; its files 0600).

    Raises DataLossError for what isn't a bundle, holds anything but regular files and folders, or reaches
    outside; `folder` then holds what came before that.
    """
    with disk_errors(folder), bundle.open("rb") as file:
        folder.mkdir(mode=0o700)
        writer, left_bytes = _FolderWriter(folder), os.fstat(file.fileno()).st_size
        for member in _members(file):
            left_bytes -= max(0, member.size)
            if member.size < 0 or left_bytes < 0:
                raise _damaged(f"{member.name!r} claims {member.size:,} bytes, more than the bundle has")
            writer.take(member, file)


def is_bundle(path: Path) -> bool:
    """Whether a file is one; a compressed tar is not, and stays the file that it is."""
    with path.open("rb") as file:
        try:
            _open(_Headers(file)).close()
        except _UNREADABLE:
            return False
    return True


class _FolderWriter:
    """Writes members into a folder that nobody else writes to; no name may be used twice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders: set[str] = {""}
        self._files: set[str] = set()

    def take(self, member: tarfile.TarInfo, file: BinaryIO) -> None:
        """Writes one member, whose bytes stand in `file`. Raises DataLossError for one that isn't taken."""
        name = _inside(member)
        if member.isdir():
            self._make_folder(name)
            return
        if name in self._files or name in self._folders:
            raise _damaged(f"it has {name!r} twice")
        if len(self._files) == MEMBERS_LIMIT:
            raise _damaged(f"it has more than {MEMBERS_LIMIT:,} files")
        self._make_folder(name.rpartition("/")[0])
        self._files.add(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(self._folder / name, flags, 0o600), "wb") as target:
            _copy(file, member, target)

    def _make_folder(self, name: str) -> None:
        if name in self._folders:
            return
        self._make_folder(name.rpartition("/")[0])
        if name in self._files:
            raise _damaged(f"it has {name!r} as a file and as a folder")
        if len(self._folders) == MEMBERS_LIMIT:
            raise _damaged(f"it has more than {MEMBERS_LIMIT:,} folders")
        (self._folder / name).mkdir(mode=0o700)
        self._folders.add(name)


class _Headers:
    """The file as tarfile sees it: a read that no header needs is an error instead of so much memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.left_bytes = file, _HEADERS_LIMIT_BYTES
        self.seek, self.tell = file.seek, file.tell

    def read(self, size_bytes: int = -1) -> bytes:
        self.left_bytes -= size_bytes
        if size_bytes < 0 or self.left_bytes < 0:
            raise tarfile.ReadError(f"the headers of a member need more than {_HEADERS_LIMIT_BYTES:,} bytes")
        return self._file.read(size_bytes)


def _members(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    headers = _Headers(file)
    try:
        with _open(headers) as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # it would keep each
                yield member
                headers.left_bytes = _HEADERS_LIMIT_BYTES
    except _UNREADABLE as error:
        raise _damaged(str(error)) from error


def _open(headers: _Headers) -> tarfile.TarFile:
    return tarfile.open(fileobj=cast(BinaryIO, headers), mode="r:")


def _inside(member: tarfile.TarInfo) -> str:
    """The member's name below the folder, empty for the folder itself."""
    if not (member.isdir() or member.isreg()) or member.issparse():
        raise _damaged(f"{member.name!r} is neither a regular file nor a folder")
    parts = [part for part in member.name.split("/") if part != "."]
    if member.isdir() and not parts:
        return ""
    name = "/".join(parts)
    if flaw := _flaw_of(name):
        raise _damaged(f"the name {member.name[:NAME_LIMIT_BYTES]!r} {flaw}")
    return name


def _flaw_of(name: str) -> str:
    """What forbids a name, relative and with "/" between its parts; empty when nothing does."""
    parts = name.split("/")
    if name.startswith("/") or ".." in parts:
        return "reaches outside the folder"
    if "" in parts:
        return "has an empty part"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        return "has a control character"
    if len(parts) > DEPTH_LIMIT:
        return f"has more than {DEPTH_LIMIT} parts"
    sizes = [len(os.fsencode(part)) for part in parts]
    if sum(sizes) + len(parts) > NAME_LIMIT_BYTES or max(sizes) > PART_LIMIT_BYTES:
        return f"is longer than {NAME_LIMIT_BYTES} bytes, or a part of it than {PART_LIMIT_BYTES}"
    return ""


def _copy(file: BinaryIO, member: tarfile.TarInfo, target: BinaryIO) -> None:
    file.seek(member.offset_data)
    left_bytes = member.size
    while left_bytes:
        chunk = file.read(min(left_bytes, _CHUNK_BYTES))
        if not chunk:
            raise _damaged(f"it ends within {member.name!r}")
        target.write(chunk)
        left_bytes -= len(chunk)


def _damaged(flaw: str) -> DataLossError:
    return DataLossError(
        f"The bundle can't be unpacked: {flaw}. Put the folder again.", reason="BUNDLE_DAMAGED"
    )


def _is_packed(name: str, hidden: bool) -> bool:
    return name != "__pycache__" and (hidden or not name.startswith("."))


def _bare(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
    member.mode = 0o644
    return member
