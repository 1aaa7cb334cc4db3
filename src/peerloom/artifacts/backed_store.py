"""A store whose folder is the cache of an object store: what isn't there yet stays, what is there may go.

An artifact is described, listed and had as long as either has it. Its bytes are read from the folder alone:
`restore` brings them back, checked by their digest like all that comes.
"""

import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path

from peerloom.artifacts.object_store import ObjectStore
from peerloom.artifacts.store import ArtifactStore
from peerloom.artifacts.upload import Upload
from peerloom.artifacts.upload_decisions import WaitingUpload, superseded
from peerloom.errors import DataLossError, NotFoundError, PeerloomError, ResourceExhaustedError
from peerloom.kit.checks import check_digest
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import Artifact

_log = get_logger()


class BackedStore(ArtifactStore):
    """Keeps at most `limit_bytes` in `folder`, and everything in the object store. Safe for threads.

    What is here and not there is held by its upload: neither the limit nor a user removes it. `on_waiting` is
    called, in any thread, when there is something to upload or to remove there; whoever is called does it, by
    `upload` and `remove_unwanted`. Until `take_index` has read what the object store has, that counts as
    nothing. Only the trainer that leads may open it.
    """

    def __init__(self, folder: Path, limit_bytes: int, objects: ObjectStore) -> None:
        self.objects = objects
        self.is_indexed = False
        self.on_waiting: Callable[[], object] = lambda: None
        self._upload = f"its upload to {objects.url}"
        self._stored: dict[str, Artifact] = {}
        self._unwanted: set[str] = set()
        super().__init__(folder, limit_bytes)
        for digest in self._artifacts:
            self._retention.hold(digest, self._upload)

    def take_index(self) -> None:
        """Reads what the object store has, and clears up after abandoned uploads; raises what that raises."""
        self.objects.forget_abandoned_uploads(time.time())
        stored = self.objects.index()
        with self._lock:
            found = {digest: artifact for digest, artifact in stored.items() if digest not in self._unwanted}
            self._stored = {**found, **self._stored}
            self.is_indexed = True
            for digest in self._stored:
                self._retention.release(digest, self._upload)

    def is_elsewhere(self, digest: str) -> bool:
        """Whether the object store has it and the folder doesn't."""
        with self._lock:
            return digest in self._stored and digest not in self._artifacts

    def is_waiting(self, digest: str) -> bool:
        """Whether it is here and not yet in the object store."""
        with self._lock:
            return self._upload in self._retention.users(digest)

    def is_stored(self, digest: str) -> bool:
        """Whether the object store has it, here or not."""
        with self._lock:
            return digest in self._stored

    def waiting(self, awaited: Collection[str] = ()) -> list[WaitingUpload]:
        """What is to be uploaded, the least recently used first; somebody waits for those `awaited`."""
        with self._lock:
            return [
                WaitingUpload(digest, artifact.size_bytes, digest in awaited)
                for digest, artifact in self._artifacts.items()
                if self.is_waiting(digest)
            ]

    def describe(self, digest: str) -> Artifact:
        """What is known of an artifact that either has. Raises NotFoundError."""
        check_digest("digest", digest)
        with self._lock:
            if digest in self._artifacts:
                return super().describe(digest)
            if digest not in self._stored:
                raise NotFoundError.of_name("artifact", digest, self._stored.keys() | self._artifacts.keys())
            described = Artifact()
            described.CopyFrom(self._stored[digest])
            described.used_by[:] = self._retention.users(digest)
            return described

    def has(self, digests: Iterable[str]) -> list[Artifact]:
        """Those that are in the folder, whole and verified, or in the object store, in the order asked."""
        found = []
        for digest in digests:
            found += super().has([digest]) or ([self.describe(digest)] if self.is_elsewhere(digest) else [])
        return found

    def list(self, after_digest: str = "", limit: int = 100) -> list[Artifact]:
        """At most `limit` artifacts that either has, ordered by digest, after `after_digest`."""
        with self._lock:
            known = self._stored.keys() | self._artifacts.keys()
            page = sorted(digest for digest in known if digest > after_digest)[:limit]
            return [self.describe(digest) for digest in page]

    def pin(self, digest: str) -> Artifact:
        """As a store's, of what the folder has; what is only in the object store is brought back first."""
        if self.is_elsewhere(digest):
            self.restore(digest)
        return super().pin(digest)

    def remove(self, digest: str) -> Artifact:
        """As a store's, from the object store too; raises what that raises, and then removes nothing."""
        with self._lock:
            artifact = self.describe(digest)
            self._retention.check_removable(digest)
        if digest in self._stored:
            self.objects.remove(digest)
        with self._lock:
            self._stored.pop(digest, None)
            self._drop(digest)
        return artifact

    def restore(self, digest: str, on_piece: Callable[[], None] = lambda: None) -> Artifact:
        """Brings an artifact back from the object store; `on_piece` is called between pieces, and may raise.

        One that was cut off is gone on with at its last byte, also after a restart. Raises NotFoundError;
        DataLossError for an object that isn't what its name says, which is forgotten; ResourceExhaustedError
        when the limit leaves no room; what `ObjectStore` raises.
        """
        try:
            return self._restore(_bare(self.describe(digest)), on_piece)
        except DataLossError as error:
            self._forget_stored(digest)
            _log.error("object_damaged", url=self.objects.url, digest=digest)
            raise DataLossError(
                f"The object {digest} in {self.objects.url} isn't the artifact of that digest, and is not "
                "used. Put the artifact again, or fetch it from a node that has it.",
                reason="OBJECT_DAMAGED",
            ) from error
        except NotFoundError:
            self._forget_stored(digest)
            raise

    def upload(self, digest: str, on_part: Callable[[], None] = lambda: None) -> None:
        """Puts an artifact, verified once more, into the object store; `on_part` is called between parts.

        Raises NotFoundError or DataLossError for one that isn't here any more; what `ObjectStore` raises.
        """
        path, artifact = self.path(digest), _bare(self.describe(digest))
        try:
            self.objects.put(path, artifact, on_part)
        except PeerloomError:
            super().describe(digest)  # gone from here meanwhile, which is no fault of the object store
            raise
        with self._lock:
            self._stored[digest] = artifact
            self._retention.release(digest, self._upload)

    def supersede(self, job_id: str, digests: Collection[str]) -> None:
        """Those of `digests` that are a job's checkpoints and in use no more go, here and there."""
        with self._lock:
            known = [self.describe(digest) for digest in digests if self._knows(digest)]
            used = {digest for digest in digests if set(self._retention.users(digest)) - {self._upload}}
            for digest in superseded(known, job_id, used):
                self._drop(digest)
                self._stored.pop(digest, None)
                self._unwanted.add(digest)
        if self._unwanted:
            self.on_waiting()

    def remove_unwanted(self, under_way: Collection[str] = ()) -> None:
        """Removes from the object store what was superseded, but for uploads `under_way`.

        None of these may be uploaded meanwhile. Raises what `ObjectStore` raises.
        """
        for digest in self._unwanted - set(under_way):
            self.objects.remove(digest)
            with self._lock:
                self._unwanted.discard(digest)
                self._stored.pop(digest, None)  # its upload had ended after all

    @property
    def has_unwanted(self) -> bool:
        """Whether something is to be removed from the object store."""
        return bool(self._unwanted)

    def _restore(self, header: Artifact, on_piece: Callable[[], None]) -> Artifact:
        upload = self._begin_again(header)
        try:
            for piece in self.objects.pieces(header.digest, header.size_bytes, upload.resumed_bytes):
                upload.write(piece)
                on_piece()
            return upload.commit()
        except DataLossError:
            if not upload.resumed_bytes:
                raise
        finally:
            upload.abort()
        # Damaged may be what was left here, as by a power cut. It is gone now, so the next time tells.
        _log.warning("leftover_damaged", digest=header.digest)
        return self._restore(header, on_piece)

    def _begin_again(self, header: Artifact) -> Upload:
        """As `begin`, going on with what an aborted one has left, which counts as a fetch's leftover does."""
        digest = header.digest
        self._check_room(header.size_bytes)
        leftover = self._files.open_fetch(digest, header.size_bytes)
        if leftover is None:
            return self.begin(header)
        try:
            self.begin_fetch(digest, header.size_bytes)
        except PeerloomError:
            leftover.close()
            raise
        release = partial(self.end_fetch, digest)
        return Upload(header, Path(leftover.name), self.make_room, self._publish, release, leftover)

    def _knows(self, digest: str) -> bool:
        return digest in self._artifacts or digest in self._stored

    def _forget_stored(self, digest: str) -> None:
        with self._lock:
            self._stored.pop(digest, None)

    def _publish(self, verified: Path, artifact: Artifact) -> Artifact:
        with self._lock:
            kept = super()._publish(verified, artifact)
            self._unwanted.discard(artifact.digest)
            if artifact.digest not in self._stored and not self.is_waiting(artifact.digest):
                self._retention.hold(artifact.digest, self._upload)
        self.on_waiting()
        return kept

    def _drop(self, digest: str) -> None:
        self._retention.release(digest, self._upload)
        super()._drop(digest)

    def _no_room(self, size_bytes: int, room_bytes: int) -> ResourceExhaustedError:
        error = super()._no_room(size_bytes, room_bytes)
        waiting_bytes = sum(one.size_bytes for one in self.waiting())
        if waiting_bytes:
            told = f"{error.message} {waiting_bytes:,} bytes stay until {self.objects.url} has them."
            return ResourceExhaustedError(told, reason=error.reason)
        return error


def _bare(described: Artifact) -> Artifact:
    """Without what is so here, and not everywhere."""
    described.ClearField("pinned")
    described.ClearField("used_by")
    return described
