"""The room of a fetch in its store: it grows with what has come, not with what somebody announced."""

import threading

from peerloom.artifacts.store import ArtifactStore
from peerloom.v1.artifact_pb2 import Manifest


class FetchRoom:
    """What an artifact that is being fetched takes in its store. Safe for threads; may wait for the disk."""

    def __init__(self, store: ArtifactStore, digest: str) -> None:
        self._store, self._digest = store, digest
        self._lock = threading.Lock()
        self._taken_bytes, self._has_begun = 0, False

    def begin(self, manifest: Manifest) -> None:
        """Bytes by this manifest are about to come. Raises ResourceExhaustedError if they can never fit."""
        self.leave()
        self._store.begin_fetch(self._digest, manifest.artifact.size_bytes)
        self._has_begun = True

    def grow(self, size_bytes: int) -> None:
        """So many more bytes have come, and others go for them. Raises ResourceExhaustedError."""
        with self._lock:
            self._store.make_room(size_bytes)
            self._taken_bytes += size_bytes

    def hand_over(self) -> None:
        """The artifact is whole, and its room the store's business from now on."""
        self._taken_bytes, self._has_begun = 0, False

    def leave(self) -> None:
        """The fetch has failed: what has come is kept until room is needed."""
        with self._lock:
            if self._has_begun:
                self._store.end_fetch(self._digest, self._taken_bytes)
            self._taken_bytes, self._has_begun = 0, False
