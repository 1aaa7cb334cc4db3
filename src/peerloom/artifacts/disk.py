"""The files of an artifact store: bytes, sidecars, and what a crash leaves behind."""

import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from peerloom.artifacts.manifest import check_manifest
from peerloom.errors import DataLossError, ResourceExhaustedError, UnavailableError
from peerloom.kit.files import sync_folder, try_lock
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import Artifact, Manifest

_log = get_logger()
_BLOCK_BYTES = 512
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turns a disk's failures into ours: ResourceExhaustedError when it is full, else UnavailableError."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise ResourceExhaustedError(
                f"The disk that holds {folder} is full ({error.strerror}). Make room there and try again.",
                reason="STORAGE_FULL",
            ) from error
        raise UnavailableError(
            f"The artifact folder {folder} can't be used: {error}. Check that it exists and can be written.",
            reason="STORAGE_UNAVAILABLE",
        ) from error


class ArtifactFolder:
    """DIGEST holds the bytes; DIGEST.json describes them, and its time of change is when they were last used.

    The sidecar is written first and the bytes appear by a rename, so a file that is visible is whole.
    DIGEST.manifest tells the chunks; DIGEST.fetch is what was fetched so far, from peers or an object store.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)

    def load(self) -> tuple[list[Artifact], dict[str, int]]:
        """Removes what a crash left behind; the rest, least recently used first, and the sizes of fetches."""
        sidecars, leftovers, found = {}, {}, []
        for path in self.path.iterdir():
            if path.suffix == ".part":
                path.unlink()
            elif path.suffix == ".json":
                sidecars[path.stem] = path
            elif path.suffix == ".fetch":
                leftovers[path.stem] = path.stat().st_blocks * _BLOCK_BYTES  # it may be full of holes
        for digest, sidecar in sorted(sidecars.items(), key=lambda item: item[1].stat().st_mtime_ns):
            try:
                artifact = json_format.Parse(sidecar.read_bytes(), Artifact())
                size_bytes = (self.path / digest).stat().st_size
            except (OSError, json_format.ParseError):
                artifact, size_bytes = Artifact(), -1
            if artifact.digest == digest and artifact.size_bytes == size_bytes:
                found.append(artifact)
            else:
                _log.warning("broken_artifact_removed", digest=digest)
                self.unlink(digest)
        return found, leftovers

    def publish(self, verified: Path, artifact: Artifact) -> tuple[int, int]:
        """Makes a file visible under its digest, durably; returns its size and time of change."""
        with disk_errors(self.path):
            self._write(f"{artifact.digest}.json", json_format.MessageToJson(artifact, indent=None).encode())
            verified.rename(self.path / artifact.digest)
            sync_folder(self.path)
            return self.state_of(artifact.digest)

    def state_of(self, digest: str) -> tuple[int, int]:
        """Size and time of change of the bytes: as long as they stay, so do the bytes. Raises OSError."""
        found = (self.path / digest).stat()
        return found.st_size, found.st_mtime_ns

    def manifest(self, digest: str, find: Callable[[], Manifest]) -> Manifest:
        """The stored manifest, or else what `find` makes, which is stored."""
        manifest = Manifest()
        try:
            manifest.ParseFromString((self.path / f"{digest}.manifest").read_bytes())
            check_manifest(manifest, digest)
        except (OSError, DecodeError, DataLossError):
            manifest = find()
            self.keep_manifest(manifest)
        return manifest

    def keep_manifest(self, manifest: Manifest) -> None:
        """Stores a manifest."""
        with disk_errors(self.path):
            self._write(f"{manifest.artifact.digest}.manifest", manifest.SerializeToString())

    def fetch_path(self, digest: str) -> Path:
        """Where a fetch's bytes go."""
        return self.path / f"{digest}.fetch"

    def open_fetch(self, digest: str, size_bytes: int) -> IO[bytes] | None:
        """The beginning that an earlier download has left, or an empty file, locked until it is closed.

        None where others are at it, and where a fetch from peers has left a file of full length with holes.
        """
        with disk_errors(self.path):
            file = self.fetch_path(digest).open("a+b")
            if try_lock(file.fileno()) and os.fstat(file.fileno()).st_size < size_bytes:
                return file
            file.close()
            return None

    def touch(self, digest: str) -> None:
        """Notes that it was used."""
        with suppress(OSError):  # a read-only disk still serves what it has
            os.utime(self.path / f"{digest}.json")

    def unlink(self, digest: str) -> None:
        """Removes an artifact's files."""
        with suppress(OSError):  # gone already, or a disk that can't be written: it is forgotten anyway
            (self.path / digest).unlink(missing_ok=True)
            for suffix in ("json", "manifest", "pin"):
                (self.path / f"{digest}.{suffix}").unlink(missing_ok=True)

    def forget_fetch(self, digest: str) -> None:
        """Removes what was fetched so far."""
        with suppress(OSError):
            self.fetch_path(digest).unlink(missing_ok=True)

    def _write(self, name: str, content: bytes) -> None:
        temporary = self.path / f"{secrets.token_hex(8)}.part"
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(self.path / name)
        finally:
            temporary.unlink(missing_ok=True)
