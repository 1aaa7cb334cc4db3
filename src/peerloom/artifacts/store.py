"""Artifacts in a folder, each under the SHA-256 of its content.

What a crash leaves behind is removed when the store opens, but for what was fetched so far, which the next
fetch goes on with. Bytes are hashed again when they are first used after a start, and whenever the file
changed since.
"""

import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from peerloom.artifacts.disk import ArtifactFolder, disk_errors
from peerloom.artifacts.manifest import manifest_of_file
from peerloom.artifacts.retention import PIN_SHARE, Retention
from peerloom.artifacts.transfer import digest_of
from peerloom.artifacts.upload import Upload
from peerloom.errors import DataLossError, NotFoundError, PeerloomError, ResourceExhaustedError
from peerloom.kit.checks import check_digest
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import Artifact, Manifest

_log = get_logger()
_COPY_BYTES = 1024 * 1024


class ArtifactStore:
    """Keeps at most `limit_bytes` in `folder`; the least recently used goes first. Safe for threads.

    `on_change` is called, in any thread, when an artifact came or went. Every method may wait for the disk.
    Raises UnavailableError when the folder can't be used.
    """

    def __init__(
        self, folder: Path, limit_bytes: int, on_change: Callable[[], object] = lambda: None
    ) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._lock = threading.RLock()
        self._artifacts: OrderedDict[str, Artifact] = OrderedDict()  # least recently used first
        self._verified: dict[str, tuple[int, int]] = {}
        self._incoming_bytes = 0
        pin_limit_bytes = int(limit_bytes * PIN_SHARE)
        self._retention = Retention(
            folder, pin_limit_bytes, lambda digest: self._artifacts[digest].size_bytes
        )
        self._on_change = on_change
        self._files = ArtifactFolder(folder)
        with disk_errors(folder):
            found, self._leftovers = self._files.load()
            self._artifacts.update((artifact.digest, artifact) for artifact in found)
            self._retention.load(set(self._artifacts))

    def begin(self, header: Artifact) -> Upload:
        """An upload of `header.size_bytes` bytes; with a digest they are checked against it.

        Raises ResourceExhaustedError when the limit doesn't leave room for it.
        """
        self._check_room(header.size_bytes)
        temporary = self._folder / f"{secrets.token_hex(8)}.part"
        return Upload(header, temporary, self.make_room, self._publish, self._release)

    def add_file(self, path: Path, header: Artifact) -> Artifact:
        """Copies a file in; digest and size are found here, the rest of `header` is kept."""
        described = Artifact(kind=header.kind, name=header.name, job_id=header.job_id, maker=header.maker)
        with disk_errors(path.parent), path.open("rb") as source:
            described.size_bytes = os.fstat(source.fileno()).st_size
            upload = self.begin(described)
            try:
                while piece := source.read(_COPY_BYTES):
                    upload.write(piece)
                return upload.commit()
            finally:
                upload.abort()

    def path(self, digest: str) -> Path:
        """Where the bytes lie, verified. Raises NotFoundError; DataLossError (and removes it) if damaged."""
        check_digest("digest", digest)
        with self._lock:
            if digest not in self._artifacts:
                raise NotFoundError.of_name("artifact", digest, self._artifacts)
        self._verify(digest)
        with self._lock:
            self._touch(digest)
        return self._folder / digest

    def describe(self, digest: str) -> Artifact:
        """What is known of an artifact, without reading its bytes. Raises NotFoundError."""
        check_digest("digest", digest)
        with self._lock:
            if digest not in self._artifacts:
                raise NotFoundError.of_name("artifact", digest, self._artifacts)
            described = Artifact()
            described.CopyFrom(self._artifacts[digest])
            described.pinned = digest in self._retention.pinned
            described.used_by[:] = self._retention.users(digest)
            return described

    def has(self, digests: Iterable[str]) -> list[Artifact]:
        """Those of `digests` that are here, whole and verified, in the order asked."""
        found = []
        for digest in digests:
            with suppress(PeerloomError):
                self.path(digest)
                found.append(self.describe(digest))
        return found

    def list(self, after_digest: str = "", limit: int = 100) -> list[Artifact]:
        """At most `limit` artifacts ordered by digest, after `after_digest`."""
        with self._lock:
            digests = sorted(digest for digest in self._artifacts if digest > after_digest)[:limit]
            return [self.describe(digest) for digest in digests]

    def manifest(self, digest: str) -> Manifest:
        """The chunks of an artifact, verified; found once, then kept. Raises as `path` does."""
        path, described = self.path(digest), self.describe(digest)

        def find() -> Manifest:
            with disk_errors(path.parent):
                made = manifest_of_file(path, described)
            if made.artifact.digest != digest:
                self._verified.pop(digest, None)
                self._verify(digest)
            return made

        manifest = self._files.manifest(digest, find)
        manifest.artifact.CopyFrom(described)
        return manifest

    def fetch_path(self, digest: str) -> Path:
        """Where a fetch's bytes go, and those of an earlier one may be."""
        check_digest("digest", digest)
        return self._files.fetch_path(digest)

    def begin_fetch(self, digest: str, size_bytes: int) -> None:
        """Bytes are about to come, and nothing goes before they do. Raises ResourceExhaustedError."""
        with self._lock:
            self._check_room(size_bytes)
            self._leftovers.pop(digest, None)

    def end_fetch(self, digest: str, size_bytes: int) -> None:
        """The fetch has failed; what came of it is kept until room is needed."""
        with self._lock:
            self._release(size_bytes)
            if self._files.fetch_path(digest).exists():
                self._leftovers[digest] = size_bytes

    def admit(self, verified: Path, manifest: Manifest) -> Artifact:
        """Makes a fetched and verified file, for which there is room, visible."""
        artifact = Artifact()
        artifact.CopyFrom(manifest.artifact)
        artifact.ClearField("pinned")
        artifact.ClearField("used_by")
        self._files.keep_manifest(manifest)
        return self._publish(verified, artifact)

    def pin(self, digest: str) -> Artifact:
        """Keeps it until `unpin`, also over restarts. Raises NotFoundError, ResourceExhaustedError."""
        with self._lock:
            self.describe(digest)
            self._retention.pin(digest)
            return self.describe(digest)

    def unpin(self, digest: str) -> Artifact:
        """Lets it go when room is needed. Raises NotFoundError."""
        with self._lock:
            self.describe(digest)
            self._retention.unpin(digest)
            return self.describe(digest)

    def hold(self, digest: str, holder: str) -> None:
        """Keeps an artifact while `holder` uses it, until `release` was called as often."""
        with self._lock:
            self._retention.hold(digest, holder)

    def release(self, digest: str, holder: str) -> None:
        """Takes one `hold` back."""
        with self._lock:
            self._retention.release(digest, holder)

    def release_all(self, holder: str) -> None:
        """Takes all holds of a holder back."""
        with self._lock:
            self._retention.release_all(holder)

    def holders(self) -> set[str]:
        """All who hold something."""
        with self._lock:
            return self._retention.holders()

    def remove(self, digest: str) -> Artifact:
        """Removes an artifact. Raises NotFoundError; FailedPreconditionError if it is pinned or in use."""
        with self._lock:
            artifact = self.describe(digest)
            self._retention.check_removable(digest)
            self._drop(digest)
            return artifact

    def digests(self) -> tuple[str, ...]:
        """All that is here, least recently used first."""
        with self._lock:
            return tuple(self._artifacts)

    @property
    def count(self) -> int:
        """How many artifacts are kept."""
        return len(self._artifacts)

    @property
    def used_bytes(self) -> int:
        """Bytes of the artifacts kept and of those on their way in."""
        with self._lock:
            kept_bytes = sum(kept.size_bytes for kept in self._artifacts.values())
            return self._incoming_bytes + kept_bytes + sum(self._leftovers.values())

    def _verify(self, digest: str) -> None:
        path = self._folder / digest
        try:
            state = self._files.state_of(digest)
            if self._verified.get(digest) == state:
                return
            sound = digest_of(path) == digest
        except OSError:
            sound = False
        with self._lock:
            if sound:
                self._verified[digest] = state
                return
            self._drop(digest)
        raise DataLossError(
            f"The artifact {digest} was damaged on disk in {self._folder} and has been removed. "
            "Fetch it again.",
            reason="ARTIFACT_DAMAGED",
        )

    def make_room(self, size_bytes: int) -> None:
        """Takes room for bytes that are here, or about to be. Raises ResourceExhaustedError."""
        with self._lock:
            while self.used_bytes + size_bytes > self._limit_bytes:
                if self._leftovers:
                    self._forget_leftover(next(iter(self._leftovers)))
                    continue
                oldest = next((d for d in self._artifacts if not self._retention.keeps(d)), None)
                if oldest is None:
                    raise self._no_room(size_bytes, self._limit_bytes - self.used_bytes)
                _log.info("artifact_dropped_for_room", digest=oldest)
                self._drop(oldest)
            self._incoming_bytes += size_bytes

    def _release(self, size_bytes: int) -> None:
        with self._lock:
            self._incoming_bytes -= size_bytes

    def _publish(self, verified: Path, artifact: Artifact) -> Artifact:
        with self._lock:
            self._verified[artifact.digest] = self._files.publish(verified, artifact)
            self._artifacts[artifact.digest] = artifact
            self._artifacts.move_to_end(artifact.digest)
            self._incoming_bytes -= artifact.size_bytes
        self._on_change()
        return artifact

    def _check_room(self, size_bytes: int) -> None:
        with self._lock:
            kept = [self._artifacts[d] for d in self._retention.kept() if d in self._artifacts]
            room_bytes = self._limit_bytes - sum(one.size_bytes for one in kept) - self._incoming_bytes
        if size_bytes > room_bytes:
            raise self._no_room(size_bytes, room_bytes)

    def _forget_leftover(self, digest: str) -> None:
        del self._leftovers[digest]
        self._files.forget_fetch(digest)

    def _touch(self, digest: str) -> None:
        if digest in self._artifacts:
            self._artifacts.move_to_end(digest)
            self._files.touch(digest)

    def _drop(self, digest: str) -> None:
        self._artifacts.pop(digest, None)
        self._verified.pop(digest, None)
        self._files.unlink(digest)
        self._retention.forget(digest)
        self._on_change()

    def _no_room(self, size_bytes: int, room_bytes: int) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"{size_bytes:,} bytes don't fit: the artifact limit of {self._limit_bytes:,} bytes leaves "
            f"{max(0, room_bytes):,}. Raise artifact_limit_bytes or wait until others are released.",
            reason="ARTIFACT_LIMIT",
        )
