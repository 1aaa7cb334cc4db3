"""Artifacts on the nodes: put, fetched from several at once, listed, pinned, removed; bundles to folders."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from peerloom.artifacts.bundles import pack, unpack
from peerloom.artifacts.fetch.fetcher import Fetcher
from peerloom.artifacts.transfer import put_file
from peerloom.client.conversions.words import number_of, word_of
from peerloom.client.holders import CALL_S, MANIFEST_S, Holders, holder_of, message_of
from peerloom.client.loop_thread import SyncFace, blocking
from peerloom.client.models import find_digest
from peerloom.client.remote_services import Services
from peerloom.client.types import ArtifactHolder, ArtifactManifest, KeptArtifact
from peerloom.errors import InvalidArgumentError, NotFoundError, PeerloomError
from peerloom.kit.dialing import ArtifactPeer
from peerloom.kit.limits import MAX_ARTIFACT_BYTES
from peerloom.v1 import artifact_pb2

_FETCH_S = 3600.0


class AsyncArtifacts:
    """`client.artifacts`. A `digest` may be cut to an unambiguous beginning, or be a model's NAME:VERSION."""

    def __init__(self, services: Services) -> None:
        self._services, self._holders = services, Holders(services)

    async def put(
        self, path: str | Path, *, kind: str = "data_set", name: str = "", copies: int = 2, node: str = ""
    ) -> KeptArtifact:
        """Gives a file, or a folder as a tar, to `node` (or any); others fetch it until there are `copies`.

        `kind` is "model", "data_set", "code" or "checkpoint". Raises InvalidArgumentError, UnavailableError
        when no node lives, ResourceExhaustedError when it fits nowhere.
        """
        number = number_of("kind", artifact_pb2.ArtifactKind, kind)
        source = await asyncio.to_thread(_expanded, path)
        if await asyncio.to_thread(source.is_dir):
            with TemporaryDirectory(prefix="peerloom-") as folder:
                bundle = Path(folder) / f"{source.resolve().name}.tar"
                await asyncio.to_thread(pack, source, bundle)
                return await self.put(bundle, kind=kind, name=name, copies=copies, node=node)
        if not await asyncio.to_thread(source.is_file):
            raise InvalidArgumentError.of_field("path", str(source), "a file or folder that exists")
        size_bytes = (await asyncio.to_thread(source.stat)).st_size
        if size_bytes > MAX_ARTIFACT_BYTES:
            limit = f"at most {MAX_ARTIFACT_BYTES:,} bytes long"
            raise InvalidArgumentError.of_field("path", f"{source} of {size_bytes:,} bytes", limit)
        header = artifact_pb2.Artifact(kind=number, name=(name or source.name)[:128], maker="user")
        nodes = await self._holders.nodes(node)
        async with self._holders.peer(nodes[0]) as peer:
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
        async with Fetcher(self._holders.holders, dialer=self._services.dialer) as fetcher:
            await fetcher.fetch(whole, target)
        return target

    async def list(self, node: str = "") -> tuple[KeptArtifact, ...]:
        """What the living nodes and the trainer keep, or one of them, by digest; the silent are left out."""
        holders = await self._holders.nodes(node) if node else await self._holders.everybody()
        found: dict[str, list[tuple[ArtifactHolder, artifact_pb2.Artifact]]] = {}
        for holder, artifacts in zip(
            holders, await asyncio.gather(*map(self._holders.list_at, holders)), strict=True
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
                async with self._holders.peer(holder) as peer:
                    manifest = (await peer.call(peer.stub.GetManifest, request, MANIFEST_S)).manifest
            except PeerloomError:
                continue
            described = await asyncio.gather(*(self._holders.describe_at(whole, each) for each in holders))
            kept = [(at, one) for at, one in zip(holders, described, strict=True) if one is not None]
            digests = tuple(one.hex() for one in manifest.chunk_digests)
            return ArtifactManifest(_kept(whole, kept), manifest.chunk_bytes, digests)
        raise NotFoundError(
            f"Nobody who can be reached holds the artifact {whole}. "
            "Start a node that kept it, or put it again.",
            reason="ARTIFACT_NOT_FOUND",
        )

    async def where(self, digest: str) -> tuple[ArtifactHolder, ...]:
        """Who holds an artifact, whole or in part: nodes as the registry knows, and the trainer."""
        whole = await self.resolve(digest)
        nodes = [holder_of(one) for one in await self._holders.holders(whole)]
        return tuple(sorted(nodes, key=lambda one: one.name))

    async def pin(self, digest: str, node: str = "") -> tuple[str, ...]:
        """Pins an artifact at all who hold it, or at one; returns their names.

        Raises ResourceExhaustedError where pins would leave too little for all others.
        """

        async def pin(peer: ArtifactPeer, whole: str) -> None:
            await peer.call(peer.stub.PinArtifact, artifact_pb2.PinArtifactRequest(digest=whole), CALL_S)

        return await self._at_holders(digest, node, pin)

    async def unpin(self, digest: str, node: str = "") -> tuple[str, ...]:
        """Takes pins back; returns the names of those who have it."""

        async def unpin(peer: ArtifactPeer, whole: str) -> None:
            await peer.call(peer.stub.UnpinArtifact, artifact_pb2.UnpinArtifactRequest(digest=whole), CALL_S)

        return await self._at_holders(digest, node, unpin)

    async def rm(self, digest: str, node: str = "") -> tuple[str, ...]:
        """Removes an artifact everywhere, or at one node; returns where.

        Raises FailedPreconditionError where it must stay.
        """

        async def remove(peer: ArtifactPeer, whole: str) -> None:
            await peer.call(
                peer.stub.RemoveArtifact, artifact_pb2.RemoveArtifactRequest(digest=whole), CALL_S
            )

        return await self._at_holders(digest, node, remove)

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
                async with self._holders.peer(other) as peer:
                    async for _ in peer.stream(peer.stub.FetchArtifact, request, _FETCH_S):
                        pass
                copied.append(other)
            except PeerloomError:
                continue
        return tuple(copied)

    async def _at_holders(
        self, digest: str, node: str, ask: Callable[[ArtifactPeer, str], Awaitable[None]]
    ) -> tuple[str, ...]:
        whole = await self.resolve(digest)
        holders = await self._holders.nodes(node) if node else await self.where(whole)
        if not holders:
            raise NotFoundError(
                f"Nobody holds the artifact {whole}. Start a node that kept it, or put it again.",
                reason="ARTIFACT_NOT_FOUND",
            )
        done = []
        for holder in holders:
            async with self._holders.peer(holder) as peer:
                await ask(peer, whole)
            done.append(holder.name)
        return tuple(done)


class Artifacts(SyncFace[AsyncArtifacts]):
    """`client.artifacts`, without async. A `digest` may be cut, or be a model's NAME:VERSION."""

    put = blocking(AsyncArtifacts.put)
    get = blocking(AsyncArtifacts.get)
    list = blocking(AsyncArtifacts.list)
    show = blocking(AsyncArtifacts.show)
    where = blocking(AsyncArtifacts.where)
    pin = blocking(AsyncArtifacts.pin)
    unpin = blocking(AsyncArtifacts.unpin)
    rm = blocking(AsyncArtifacts.rm)
    resolve = blocking(AsyncArtifacts.resolve)


async def fetch_folder(services: Services, digest: str, folder: str | Path) -> Path:
    """Unpacks a bundle into a new `folder`, checked; returns its path.

    Raises what `AsyncArtifacts.get` and `unpack` raise, and InvalidArgumentError where no folder can be made.
    """
    target = await asyncio.to_thread(_expanded, folder)
    if await asyncio.to_thread(target.exists):
        raise InvalidArgumentError.of_field("folder", str(target), "a folder that doesn't exist yet")
    await asyncio.to_thread(make_room, target)
    with TemporaryDirectory(prefix="peerloom-") as fetched:
        bundle = await AsyncArtifacts(services).get(digest, Path(fetched) / "files.tar")
        await asyncio.to_thread(unpack, bundle, target)
    return target


def _expanded(path: str | Path) -> Path:
    return Path(path).expanduser()


def _kept(digest: str, kept: Sequence[tuple[ArtifactHolder, artifact_pb2.Artifact]]) -> KeptArtifact:
    first = kept[0][1] if kept else artifact_pb2.Artifact()
    return KeptArtifact(
        digest=digest,
        size_bytes=first.size_bytes,
        name=first.name,
        kind=word_of(artifact_pb2.ArtifactKind, first.kind),
        job_id=first.job_id,
        maker=first.maker,
        holders=tuple(sorted(holder.name for holder, _ in kept)),
        pinned_by=tuple(sorted(holder.name for holder, one in kept if one.pinned)),
        used_by=tuple(sorted({user for _, one in kept for user in one.used_by})),
    )


def make_room(target: Path) -> None:
    """Makes the folders above a file. Raises InvalidArgumentError where none can be."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        limit = f"a file that can be written; {target.parent} can't be made: {error.strerror}"
        raise InvalidArgumentError.of_field("path", str(target), limit) from error
