"""Artifacts on the nodes: put, fetched from several at once, listed, pinned and removed."""

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from peerloom.client.keepers import CALL_S, MANIFEST_S, Keepers, holder_of, message_of
from peerloom.client.models import find_digest
from peerloom.client.services import Services
from peerloom.client.types import ArtifactHolder, ArtifactManifest, KeptArtifact
from peerloom.errors import InvalidArgumentError, NotFoundError, PeerloomError
from peerloom.kit.artifact_transfer import put_file
from peerloom.kit.bundles import pack
from peerloom.kit.exchange.fetch import Fetcher
from peerloom.v1 import artifact_pb2

T = TypeVar("T")
KINDS = ("model", "data_set", "code", "checkpoint")
_FETCH_S = 3600.0


class AsyncArtifacts:
    """`client.artifacts`. A `digest` may be cut to an unambiguous beginning, or be a model's NAME:VERSION."""

    def __init__(self, services: Services) -> None:
        self._services, self._keepers = services, Keepers(services)

    async def put(
        self, path: str | Path, *, kind: str = "data_set", name: str = "", copies: int = 2, node: str = ""
    ) -> KeptArtifact:
        """Gives a file, or a folder as a tar, to `node` (or any); others fetch it until there are `copies`.

        `kind` is "model", "data_set", "code" or "checkpoint". Raises InvalidArgumentError, UnavailableError
        when no node lives, ResourceExhaustedError when it fits nowhere.
        """
        if kind not in KINDS:
            raise InvalidArgumentError.of_field("kind", kind, f"one of {', '.join(KINDS)}")
        source = await asyncio.to_thread(_expanded, path)
        if await asyncio.to_thread(source.is_dir):
            with TemporaryDirectory(prefix="peerloom-") as folder:
                bundle = Path(folder) / f"{source.resolve().name}.tar"
                await asyncio.to_thread(pack, source, bundle)
                return await self.put(bundle, kind=kind, name=name, copies=copies, node=node)
        if not await asyncio.to_thread(source.is_file):
            raise InvalidArgumentError.of_field("path", str(source), "a file or folder that exists")
        number = artifact_pb2.ArtifactKind.Value(f"ARTIFACT_KIND_{kind.upper()}")
        header = artifact_pb2.Artifact(kind=number, name=(name or source.name)[:128], maker="user")
        nodes = await self._keepers.nodes(node)
        async with self._keepers.peer(nodes[0]) as peer:
            kept = await put_file(peer, source, header)
        copied = await self._copy(kept.digest, nodes[0], nodes[1:], copies - 1)
        return _kept(kept.digest, [(holder, kept) for holder in [nodes[0], *copied]])

    async def get(self, digest: str, path: str | Path) -> Path:
        """Fetches an artifact from all who hold it to `path`, checked; returns the file's path.

        Raises NotFoundError when nobody holds it, DataLossError when only wrong bytes came.
        """
        whole = await self.resolve(digest)
        target = await asyncio.to_thread(_expanded, path)
        if await asyncio.to_thread(target.is_dir):
            target /= whole[:12]
        async with Fetcher(self._keepers.holders, tls_ca=self._services.tls_ca) as fetcher:
            await fetcher.fetch(whole, target)
        return target

    async def list(self, node: str = "") -> tuple[KeptArtifact, ...]:
        """What the living nodes and the trainer keep, or one of them, by digest; the silent are left out."""
        holders = await self._keepers.nodes(node) if node else await self._keepers.everybody()
        found: dict[str, list[tuple[ArtifactHolder, artifact_pb2.Artifact]]] = {}
        for holder, artifacts in zip(
            holders, await asyncio.gather(*map(self._keepers.list_at, holders)), strict=True
        ):
            for artifact in artifacts:
                found.setdefault(artifact.digest, []).append((holder, artifact))
        return tuple(_kept(digest, kept) for digest, kept in sorted(found.items()))

    async def show(self, digest: str) -> ArtifactManifest:
        """An artifact with its chunks and who keeps it. Raises NotFoundError with the nearest digests."""
        whole = await self.resolve(digest)
        request = artifact_pb2.GetManifestRequest(digest=whole)
        holders = await self.where(whole)
        for holder in holders:
            try:
                async with self._keepers.peer(holder) as peer:
                    manifest = (await peer.call("GetManifest", request, MANIFEST_S)).manifest
            except PeerloomError:
                continue
            described = await asyncio.gather(*(self._keepers.describe_at(whole, each) for each in holders))
            kept = [(at, one) for at, one in zip(holders, described, strict=True) if one is not None]
            digests = tuple(one.hex() for one in manifest.chunk_digests)
            return ArtifactManifest(_kept(whole, kept), manifest.chunk_bytes, digests)
        raise NotFoundError(
            f"Nobody who can be reached holds the artifact {whole}.", reason="ARTIFACT_NOT_FOUND"
        )

    async def where(self, digest: str) -> tuple[ArtifactHolder, ...]:
        """Who holds it, whole or in part: nodes as the registry knows, and the trainer."""
        whole = await self.resolve(digest)
        nodes = [holder_of(one) for one in await self._keepers.holders(whole)]
        return tuple(sorted(nodes, key=lambda one: one.name))

    async def pin(self, digest: str, node: str = "") -> tuple[str, ...]:
        """Keeps it at all who hold it, or at one; returns their names. Raises ResourceExhaustedError."""
        return await self._at_holders(digest, node, "PinArtifact", artifact_pb2.PinArtifactRequest)

    async def unpin(self, digest: str, node: str = "") -> tuple[str, ...]:
        """Takes pins back; returns the names of those who have it."""
        return await self._at_holders(digest, node, "UnpinArtifact", artifact_pb2.UnpinArtifactRequest)

    async def rm(self, digest: str, node: str = "") -> tuple[str, ...]:
        """Removes it everywhere, or at one; returns where. Raises FailedPreconditionError if it must stay."""
        return await self._at_holders(digest, node, "RemoveArtifact", artifact_pb2.RemoveArtifactRequest)

    async def resolve(self, text: str) -> str:
        """The digest meant. Raises NotFoundError with the nearest, InvalidArgumentError if several fit."""
        if re.fullmatch("[0-9a-f]{64}", text):
            return text
        digests = [one.digest for one in await self.list()]
        fitting = [one for one in digests if text and one.startswith(text)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            limit = f"the beginning of one artifact only ({len(fitting)} begin so)"
            raise InvalidArgumentError.of_field("digest", text, limit)
        try:
            return await find_digest(self._services, text)
        except NotFoundError:
            raise NotFoundError.of_name("artifact", text, [one[:12] for one in digests]) from None

    async def _copy(
        self, digest: str, source: ArtifactHolder, others: Sequence[ArtifactHolder], copies: int
    ) -> tuple[ArtifactHolder, ...]:
        """Has others fetch it, one after the other until there are enough; those who could."""
        copied: list[ArtifactHolder] = []
        request = artifact_pb2.FetchArtifactRequest(digest=digest, holders=[message_of(source)])
        for other in others:
            if len(copied) >= copies:
                break
            try:
                async with self._keepers.peer(other) as peer:
                    async for _ in peer.stream("FetchArtifact", request, _FETCH_S):
                        pass
                copied.append(other)
            except PeerloomError:
                continue
        return tuple(copied)

    async def _at_holders(
        self, digest: str, node: str, method: str, request: Callable[..., Any]
    ) -> tuple[str, ...]:
        whole = await self.resolve(digest)
        holders = await self._keepers.nodes(node) if node else await self.where(whole)
        if not holders:
            raise NotFoundError(f"Nobody holds the artifact {whole}.", reason="ARTIFACT_NOT_FOUND")
        done = []
        for holder in holders:
            async with self._keepers.peer(holder) as peer:
                await peer.call(method, request(digest=whole), CALL_S)
            done.append(holder.name)
        return tuple(done)


def _expanded(path: str | Path) -> Path:
    return Path(path).expanduser()


def _kept(digest: str, kept: Sequence[tuple[ArtifactHolder, artifact_pb2.Artifact]]) -> KeptArtifact:
    first = kept[0][1] if kept else artifact_pb2.Artifact()
    word = artifact_pb2.ArtifactKind.Name(first.kind).removeprefix("ARTIFACT_KIND_").lower()
    return KeptArtifact(
        digest=digest,
        size_bytes=first.size_bytes,
        name=first.name,
        kind="unknown" if word == "unspecified" else word,  # type: ignore[arg-type]  # a word of the schema
        job_id=first.job_id,
        maker=first.maker,
        holders=tuple(sorted(holder.name for holder, _ in kept)),
        pinned_by=tuple(sorted(holder.name for holder, one in kept if one.pinned)),
        used_by=tuple(sorted({user for _, one in kept for user in one.used_by})),
    )
