"""What has come of an artifact so far: a file of its full length, with its chunks at their places.

Nothing else is kept on disk of a fetch, so nothing can contradict it: who takes it up again reads what is
there and keeps the chunks that have their digests. Holes are skipped, they were never written.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from peerloom.artifacts.disk import disk_errors
from peerloom.artifacts.manifest import span_of
from peerloom.errors import DataLossError, FailedPreconditionError, PeerloomError
from peerloom.kit.files import (
    MOVES_OPEN_FILES,
    check_free,
    has_data,
    open_for_update,
    read_at,
    sync_folder,
    try_lock,
    write_at,
)
from peerloom.v1.artifact_pb2 import Manifest

PIECE_BYTES = 256 * 1024


class ChunkDamagedError(Exception):
    """The bytes that came aren't the chunk."""


class OwnDiskError(Exception):
    """What came can't be written here; `cause` says why."""

    def __init__(self, cause: PeerloomError) -> None:
        super().__init__(cause.message)
        self.cause = cause


class ChunkSink:
    """One chunk on its way in: bytes are written where they belong and hashed as they come."""

    def __init__(self, partial: "Partial", index: int) -> None:
        self._partial, self._index = partial, index
        span = span_of(partial.manifest, index)
        self._at, self._end = span.offset_bytes, span.offset_bytes + span.size_bytes
        self._hash = hashlib.sha256()

    @property
    def left_bytes(self) -> int:
        """How many bytes are to come."""
        return self._end - self._at

    def write(self, data: bytes | memoryview) -> None:
        """The next bytes. Raises ChunkDamagedError beyond the end, OwnDiskError on a full disk."""
        if len(data) > self.left_bytes:
            raise ChunkDamagedError(f"more than the {self._end:,} bytes of chunk {self._index} came")
        self._partial.write(self._at, data)
        self._hash.update(data)
        self._at += len(data)

    def finish(self) -> None:
        """Raises ChunkDamagedError unless the bytes are the chunk, OwnDiskError without room for them."""
        if self.left_bytes:
            raise ChunkDamagedError(f"chunk {self._index} ended {self.left_bytes:,} bytes early")
        if self._hash.digest() != self._partial.manifest.chunk_digests[self._index]:
            raise ChunkDamagedError(f"chunk {self._index} doesn't have the digest that the manifest gives")
        try:
            self._partial.keep(self._index, self._hash.digest())
        except PeerloomError as error:
            raise OwnDiskError(error) from error


class Partial:
    """A fetch's file at `path`. Safe for threads; all methods but `held` may wait for the disk.

    A file that is there already is taken up: `take_up` finds what is good of it. `make_room` is asked for the
    bytes of each chunk that is here, and may refuse them by a PeerloomError.
    """

    def __init__(
        self, path: Path, manifest: Manifest, make_room: Callable[[int], None] = lambda _: None
    ) -> None:
        self.path, self.manifest, self._make_room = path, manifest, make_room
        self._held: set[int] = set()
        self._lock = threading.Lock()
        self._whole = hashlib.sha256()
        self._hashed_chunks = 0
        with disk_errors(path.parent):
            self._file = open_for_update(path)
            try:
                self._take_lock()
                os.ftruncate(self._file, manifest.artifact.size_bytes)
                # Whether the disk has the room is found now, not after an hour of fetching.
                check_free(self._file, path.parent, manifest.artifact.size_bytes)
            except BaseException as error:
                os.close(self._file)
                if isinstance(error, OSError):
                    path.unlink(missing_ok=True)
                raise

    def take_up(self) -> None:
        """Keeps the chunks that an earlier fetch left and that have their digests."""
        with disk_errors(self.path.parent):
            for index, digest in enumerate(self.manifest.chunk_digests):
                if self._has_data(index) and self._digest_of(index) == digest:
                    self.keep(index, digest)

    @property
    def held(self) -> frozenset[int]:
        """The chunks that are here, each with its digest."""
        with self._lock:
            return frozenset(self._held)

    def sink(self, index: int) -> ChunkSink:
        """Where a chunk's bytes go as they come."""
        return ChunkSink(self, index)

    def write(self, offset_bytes: int, data: bytes | memoryview) -> None:
        """Writes bytes at their place. Raises OwnDiskError when that can't be."""
        view = memoryview(data)
        try:
            with disk_errors(self.path.parent):
                while view:
                    written = write_at(self._file, view, offset_bytes)
                    view, offset_bytes = view[written:], offset_bytes + written
        except PeerloomError as error:
            raise OwnDiskError(error) from error

    def read(self, index: int, offset_bytes: int, size_bytes: int) -> bytes:
        """Bytes of a chunk that is here, from an offset within it."""
        assert index in self.held, "only a chunk that is here can be read"
        return read_at(self._file, size_bytes, span_of(self.manifest, index).offset_bytes + offset_bytes)

    def keep(self, index: int, digest: bytes) -> None:
        """Notes a chunk as here; `digest` is what its bytes hashed to. Raises what `make_room` raises."""
        assert digest == self.manifest.chunk_digests[index], "only what was verified is kept"
        self._make_room(span_of(self.manifest, index).size_bytes)
        with self._lock:
            self._held.add(index)

    def hash_further(self) -> bool:
        """Hashes one more chunk of the whole if it is here; False when there is none."""
        with self._lock:
            index = self._hashed_chunks
            if index not in self._held or len(self.manifest.chunk_digests) == 1:
                return False
            self._hashed_chunks += 1
        self._hash_into(self._whole, index)
        return True

    def finish(self, destination: Path) -> None:
        """Moves the whole to `destination`, durably.

        Raises DataLossError, and forgets all, when it isn't what its name says: the manifest lied.
        """
        digest, count = self.manifest.artifact.digest, len(self.manifest.chunk_digests)
        assert len(self.held) == count, "all chunks are here"
        while self.hash_further():
            pass
        # The digest of a single chunk is the whole's: `check_manifest` saw to that.
        if count > 1 and self._whole.hexdigest() != digest:
            self.discard()
            raise DataLossError(
                f"The manifest of the artifact {digest} lied: its chunks together have another digest.",
                reason="MANIFEST_LIES",
            )
        with disk_errors(self.path.parent):
            os.fsync(self._file)
            if not MOVES_OPEN_FILES:
                self.close()
            self.path.replace(destination)
            sync_folder(destination.parent)
        self.close()

    def close(self) -> None:
        """Leaves what is here for later."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def discard(self) -> None:
        """Forgets what is here."""
        self.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _take_lock(self) -> None:
        if not try_lock(self._file):
            raise FailedPreconditionError(
                f"The artifact {self.manifest.artifact.digest} is being fetched to {self.path} already. Wait "
                "for that, or give another place.",
                reason="FETCH_UNDER_WAY",
            )

    def _has_data(self, index: int) -> bool:
        span = span_of(self.manifest, index)
        return has_data(self._file, span.offset_bytes, span.size_bytes)

    def _digest_of(self, index: int) -> bytes:
        chunk = hashlib.sha256()
        self._hash_into(chunk, index)
        return chunk.digest()

    def _hash_into(self, hashing: "hashlib._Hash", index: int) -> None:
        for piece in self._pieces(index):
            hashing.update(piece)

    def _pieces(self, index: int) -> Iterable[bytes]:
        span = span_of(self.manifest, index)
        at, end = span.offset_bytes, span.offset_bytes + span.size_bytes
        while at < end:
            piece = read_at(self._file, min(PIECE_BYTES, end - at), at)
            if not piece:
                return
            yield piece
            at += len(piece)
