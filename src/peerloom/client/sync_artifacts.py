"""Artifacts on the nodes, without async."""

from pathlib import Path

from peerloom.client.artifacts import AsyncArtifacts
from peerloom.client.loop_thread import LoopThread
from peerloom.client.types import ArtifactHolder, ArtifactManifest, KeptArtifact


class Artifacts:
    """`client.artifacts`; arguments and errors are those of `AsyncArtifacts`."""

    def __init__(self, core: AsyncArtifacts, loop: LoopThread) -> None:
        self._core, self._loop = core, loop

    def put(
        self, path: str | Path, *, kind: str = "data_set", name: str = "", copies: int = 2, node: str = ""
    ) -> KeptArtifact:
        """Gives a file to a node; others fetch it until there are `copies`."""
        return self._loop.run(self._core.put(path, kind=kind, name=name, copies=copies, node=node))

    def get(self, digest: str, path: str | Path) -> Path:
        """Fetches an artifact from all who hold it to `path`, checked; returns the file's path."""
        return self._loop.run(self._core.get(digest, path))

    def list(self, node: str = "") -> tuple[KeptArtifact, ...]:
        """What the living nodes and the trainer keep (or one of them), by digest."""
        return self._loop.run(self._core.list(node))

    def show(self, digest: str) -> ArtifactManifest:
        """An artifact with its chunks and who keeps it."""
        return self._loop.run(self._core.show(digest))

    def where(self, digest: str) -> tuple[ArtifactHolder, ...]:
        """Who holds it, whole or in part."""
        return self._loop.run(self._core.where(digest))

    def pin(self, digest: str, node: str = "") -> tuple[str, ...]:
        """Keeps it at all who hold it, or at one; returns their names."""
        return self._loop.run(self._core.pin(digest, node))

    def unpin(self, digest: str, node: str = "") -> tuple[str, ...]:
        """Takes pins back; returns the names of those who have it."""
        return self._loop.run(self._core.unpin(digest, node))

    def rm(self, digest: str, node: str = "") -> tuple[str, ...]:
        """Removes it everywhere, or at one node; returns where."""
        return self._loop.run(self._core.rm(digest, node))
