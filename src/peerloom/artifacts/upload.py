"""One artifact on its way in: bytes go to a temporary file and are hashed as they come."""

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from peerloom.artifacts.disk import disk_errors
from peerloom.errors import DataLossError
from peerloom.v1.artifact_pb2 import Artifact

_PIECE_BYTES = 1024 * 1024


class Upload:
    """Bytes that become an artifact when they turn out to be what the header promised.

    Safe for threads: a cancelled write may still be running in its thread when `abort` comes. `make_room`
    is asked for each piece before it is written and raises ResourceExhaustedError; `publish` makes the
    finished file visible and takes its room over; `release` gives the room of the others back. There is no
    file before the first bytes: a header costs nothing. With a file `leftover`, which is at `temporary`, what
    is in it comes first, and outlives an `abort`.
    """

    def __init__(
        self,
        header: Artifact,
        temporary: Path,
        make_room: Callable[[int], None],
        publish: Callable[[Path, Artifact], Artifact],
        release: Callable[[int], None],
        leftover: IO[bytes] | None = None,
    ) -> None:
        self._header = header
        self._temporary = temporary
        self._make_room, self._publish, self._release = make_room, publish, release
        self._hash = hashlib.sha256()
        self._received_bytes = 0
        self._lock = threading.Lock()
        self._open = True
        self._file, self._is_kept = leftover, leftover is not None
        self.resumed_bytes = 0
        if leftover is not None:
            self._take_up(leftover)

    def write(self, data: bytes) -> None:
        """Appends bytes. Raises DataLossError beyond the size, ResourceExhaustedError without room."""
        with self._lock:
            assert self._open, "an upload that has ended takes no bytes"
            if self._received_bytes + len(data) > self._header.size_bytes:
                self._is_kept = False
                raise DataLossError(
                    f"The artifact {self._shown} was announced with {self._header.size_bytes:,} bytes, "
                    "but more came. Send it again with its true size.",
                    reason="ARTIFACT_TOO_LONG",
                )
            self._make_room(len(data))
            self._received_bytes += len(data)
            with disk_errors(self._temporary.parent):
                self._opened().write(data)
            self._hash.update(data)

    def commit(self) -> Artifact:
        """Makes the artifact visible and durable. Raises DataLossError if it isn't what was promised."""
        with self._lock:
            assert self._open, "an upload ends once"
            try:
                self._check()
                with disk_errors(self._temporary.parent):
                    file = self._opened()
                    file.flush()
                    os.fsync(file.fileno())
                artifact = Artifact()
                artifact.CopyFrom(self._header)
                artifact.digest = self._hash.hexdigest()
                published = self._publish(self._temporary, artifact)
                self._received_bytes = 0
                return published
            finally:
                self._is_kept = False  # it is published, or not what it should be
                self._end()

    def abort(self) -> None:
        """Forgets the bytes, but for those in a leftover; does nothing after the end."""
        with self._lock:
            if self._open:
                self._end()

    @property
    def _shown(self) -> str:
        return self._header.digest or repr(self._header.name)

    def _check(self) -> None:
        if self._received_bytes != self._header.size_bytes:
            raise DataLossError(
                f"The artifact {self._shown} was cut: {self._received_bytes:,} bytes came of the "
                f"{self._header.size_bytes:,} announced. Send it again.",
                reason="ARTIFACT_TRUNCATED",
            )
        digest = self._hash.hexdigest()
        if self._header.digest and digest != self._header.digest:
            raise DataLossError(
                f"The artifact {self._shown} was damaged on its way: its bytes have the digest {digest}. "
                "Send it again.",
                reason="ARTIFACT_DAMAGED",
            )

    def _take_up(self, leftover: IO[bytes]) -> None:
        """Whether these bytes are the artifact's is found at the end, by its digest."""
        try:
            with disk_errors(self._temporary.parent):
                left_bytes = os.fstat(leftover.fileno()).st_size
                self._make_room(left_bytes)
                self._received_bytes = self.resumed_bytes = left_bytes
                leftover.seek(0)
                while piece := leftover.read(_PIECE_BYTES):
                    self._hash.update(piece)
        except BaseException:
            self._is_kept = False  # there is no room for it
            self._end()
            raise

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            self._file = self._temporary.open("xb")
        return self._file

    def _end(self) -> None:
        self._open = False
        try:
            if self._file is not None:
                self._file.close()
        except OSError:
            pass  # a full disk shows again on close; what matters was raised before
        finally:
            if self._file is not None and not self._is_kept:
                self._temporary.unlink(missing_ok=True)
            self._release(self._received_bytes)
