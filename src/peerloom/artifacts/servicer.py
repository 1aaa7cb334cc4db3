"""ArtifactService over a store of artifacts; served by node agents and by the trainer."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import IO, Any

from grpc import aio

from peerloom.artifacts.cache import ArtifactCache
from peerloom.artifacts.disk import disk_errors
from peerloom.artifacts.fetch.bulk_server import BulkServer
from peerloom.artifacts.fetch.sources import packed
from peerloom.artifacts.fetch.throttle import Throttle
from peerloom.artifacts.known_holders import KeepKnown, keep_all
from peerloom.artifacts.named_holders import check_holders
from peerloom.artifacts.store import ArtifactStore
from peerloom.artifacts.transfer import patience_s
from peerloom.errors import DeadlineError, InvalidArgumentError
from peerloom.kit.call_limits import CallSlots
from peerloom.kit.channel import CHUNK_BYTES
from peerloom.kit.checks import check_choice, check_digest, check_line, check_range
from peerloom.kit.paging import name_key, page_size_of, page_token_after
from peerloom.v1.artifact_pb2 import (
    Artifact,
    ArtifactKind,
    FetchArtifactRequest,
    FetchArtifactResponse,
    GetArtifactRequest,
    GetArtifactResponse,
    GetChunkRequest,
    GetChunkResponse,
    GetManifestRequest,
    GetManifestResponse,
    HasArtifactsRequest,
    HasArtifactsResponse,
    ListArtifactsRequest,
    ListArtifactsResponse,
    PinArtifactRequest,
    PinArtifactResponse,
    PutArtifactRequest,
    PutArtifactResponse,
    RemoveArtifactRequest,
    RemoveArtifactResponse,
    UnpinArtifactRequest,
    UnpinArtifactResponse,
)
from peerloom.v1.artifact_pb2_grpc import ArtifactServiceServicer

_CHUNK_LIMIT_BYTES = 1024 * 1024
_DIGESTS_LIMIT = 1000
_Context = aio.ServicerContext[Any, Any]


class ArtifactServicer(ArtifactServiceServicer):
    """Translates; store and cache decide. Disk and hashing run in threads.

    `bulk` sends chunks beside gRPC, `throttle` limits what is sent; the cache fetches. `settle` is awaited
    with its digest before a change is acknowledged: a node tells the registry, so whoever asks next finds
    what was put; a trainer waits until its object store has it. `keep_known` leaves out of the holders that a
    caller names those that aren't to be dialled.
    """

    def __init__(
        self,
        store: ArtifactStore,
        cache: ArtifactCache | None = None,
        bulk: BulkServer | None = None,
        throttle: Throttle | None = None,
        settle: Callable[[str], Awaitable[None]] | None = None,
        keep_known: KeepKnown = keep_all,
    ) -> None:
        self._store = store
        self._cache = cache or ArtifactCache(store)
        self._bulk = bulk
        self._throttle = throttle or Throttle()
        self._settle, self._keep_known = settle or _at_once, keep_known
        # Each takes an open file. A fetch asks one peer for 12 chunks at most.
        self._uploads = CallSlots("uploads", limit=64, limit_of_host=32)
        self._downloads = CallSlots("downloads", limit=64, limit_of_host=32)
        self._chunks = CallSlots("chunks on their way", limit=256, limit_of_host=64)

    async def PutArtifact(
        self, request_iterator: AsyncIterator[PutArtifactRequest], context: _Context
    ) -> PutArtifactResponse:
        with self._uploads.taken_by(context.peer()):
            return await self._receive(_Parts(request_iterator))

    async def _receive(self, parts: "_Parts") -> PutArtifactResponse:
        header = _checked_header(await parts.next())
        existing = await asyncio.to_thread(self._store.has, [header.digest])
        if existing:
            await self._settle(header.digest)
            return PutArtifactResponse(artifact=existing[0], existed=True)
        upload = await asyncio.to_thread(self._store.begin, header)
        try:
            while (part := await parts.next()) is not None:
                await asyncio.to_thread(upload.write, _checked_chunk(part))
            kept = await asyncio.to_thread(upload.commit)
        finally:
            await asyncio.to_thread(upload.abort)
        await self._settle(header.digest)
        return PutArtifactResponse(artifact=kept)

    async def GetArtifact(
        self, request: GetArtifactRequest, context: _Context
    ) -> AsyncIterator[GetArtifactResponse]:
        with self._downloads.taken_by(context.peer()):
            await self._cache.bring(request.digest)
            path = await asyncio.to_thread(self._store.path, request.digest)
            header = self._store.describe(request.digest)
            check_range("offset_bytes", request.offset_bytes, 0, header.size_bytes)
            with disk_errors(path.parent):
                file: IO[bytes] = await asyncio.to_thread(path.open, "rb")
            with file:
                file.seek(request.offset_bytes)
                chunk = await asyncio.to_thread(file.read, CHUNK_BYTES)
                await self._throttle.take(len(chunk))
                yield GetArtifactResponse(header=header, chunk=chunk)
                while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                    await self._throttle.take(len(chunk))
                    yield GetArtifactResponse(chunk=chunk)

    async def HasArtifacts(self, request: HasArtifactsRequest, context: _Context) -> HasArtifactsResponse:
        check_range("digests' length", len(request.digests), 0, _DIGESTS_LIMIT)
        for digest in request.digests:
            check_digest("digests", digest)
        return HasArtifactsResponse(artifacts=await asyncio.to_thread(self._store.has, list(request.digests)))

    async def ListArtifacts(self, request: ListArtifactsRequest, context: _Context) -> ListArtifactsResponse:
        size = page_size_of(request.page_size)
        after = name_key(request.page_token)
        page = await asyncio.to_thread(self._store.list, after, size)
        token = page_token_after(page, size, page[-1].digest if page else "")
        return ListArtifactsResponse(artifacts=page, next_page_token=token)

    async def GetManifest(self, request: GetManifestRequest, context: _Context) -> GetManifestResponse:
        check_digest("digest", request.digest)
        manifest, held = await self._cache.manifest(request.digest)
        count = len(manifest.chunk_digests)
        return GetManifestResponse(
            manifest=manifest,
            is_partial=held is not None,
            held_chunks=b"" if held is None else packed(held, count),
            bulk_port=self._bulk.told_port if self._bulk else 0,
            is_bulk_tls=self._bulk is not None and self._bulk.is_tls,
        )

    async def GetChunk(self, request: GetChunkRequest, context: _Context) -> AsyncIterator[GetChunkResponse]:
        check_digest("digest", request.digest)
        with self._chunks.taken_by(context.peer()):
            chunk = await asyncio.to_thread(self._cache.open_chunk, request.digest, request.index)
            try:
                at, end = chunk.offset_bytes, chunk.offset_bytes + chunk.size_bytes
                while at < end:
                    size_bytes = min(end - at, CHUNK_BYTES, self._throttle.piece_bytes)
                    await self._throttle.take(size_bytes)
                    piece = await asyncio.to_thread(os.pread, chunk.descriptor, size_bytes, at)
                    if not piece:
                        return
                    yield GetChunkResponse(piece=piece)
                    at += len(piece)
            finally:
                os.close(chunk.descriptor)

    async def FetchArtifact(
        self, request: FetchArtifactRequest, context: _Context
    ) -> AsyncIterator[FetchArtifactResponse]:
        check_digest("digest", request.digest)
        check_holders("holders", request.holders)
        check_line("job_id", request.job_id, high=128)
        holders = await self._keep_known(request.holders)
        async for progress in self._cache.follow(request.digest, holders, request.job_id):
            if progress.artifact is not None:
                await self._settle(request.digest)
            yield FetchArtifactResponse(
                received_bytes=progress.received_bytes,
                size_bytes=progress.size_bytes,
                peers=progress.peers,
                artifact=progress.artifact,
            )

    async def PinArtifact(self, request: PinArtifactRequest, context: _Context) -> PinArtifactResponse:
        return PinArtifactResponse(artifact=await asyncio.to_thread(self._store.pin, request.digest))

    async def UnpinArtifact(self, request: UnpinArtifactRequest, context: _Context) -> UnpinArtifactResponse:
        return UnpinArtifactResponse(artifact=await asyncio.to_thread(self._store.unpin, request.digest))

    async def RemoveArtifact(
        self, request: RemoveArtifactRequest, context: _Context
    ) -> RemoveArtifactResponse:
        removed = await asyncio.to_thread(self._store.remove, request.digest)
        await self._settle(request.digest)
        return RemoveArtifactResponse(artifact=removed)


async def _at_once(digest: str) -> None:
    """Nobody has to be told."""


class _Parts:
    """The parts of an upload as they come; one that stalls, or creeps, is ended."""

    def __init__(self, requests: AsyncIterator[PutArtifactRequest]) -> None:
        self._requests = aiter(requests)
        self._now_s = asyncio.get_running_loop().time
        self._began_s, self._received_bytes = self._now_s(), 0

    async def next(self) -> PutArtifactRequest | None:
        """The next one; None after the last. Raises DeadlineError."""
        limit_s = patience_s(self._now_s() - self._began_s, self._received_bytes)
        try:
            async with asyncio.timeout(limit_s):
                part = await anext(self._requests, None)
        except TimeoutError:
            raise DeadlineError(
                f"The upload stalled: {self._received_bytes:,} bytes came in "
                f"{self._now_s() - self._began_s:.0f} s. They are forgotten; send them again, at 100 kB/s at "
                "least.",
                reason="TRANSFER_STALLED",
            ) from None
        self._received_bytes += 0 if part is None else len(part.chunk)
        return part


def _checked_header(part: PutArtifactRequest | None) -> Artifact:
    if part is None or part.WhichOneof("part") != "header":
        raise InvalidArgumentError.of_field("the first part", "no header", "the header, with digest and size")
    check_digest("header.digest", part.header.digest)
    check_line("header.name", part.header.name, high=128)
    check_line("header.job_id", part.header.job_id, high=128)
    check_line("header.maker", part.header.maker, high=128)
    check_choice("header.kind", part.header.kind, ArtifactKind.values(), "a known kind of artifact")
    part.header.ClearField("pinned")  # what is so there, not here
    part.header.ClearField("used_by")
    return part.header


def _checked_chunk(part: PutArtifactRequest) -> bytes:
    if part.WhichOneof("part") != "chunk":
        raise InvalidArgumentError.of_field("part", "a second header", "a chunk, after the header")
    check_range("chunk's length", len(part.chunk), 0, _CHUNK_LIMIT_BYTES)
    return part.chunk
