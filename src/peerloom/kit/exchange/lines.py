"""Ways to a chunk's bytes: plain TCP where the peer offers it, else gRPC."""

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import Executor
from functools import partial
from typing import Any, Protocol

from peerloom.errors import DeadlineError
from peerloom.kit.channel import Peer
from peerloom.kit.exchange.bulk import STALL_S, BulkLine
from peerloom.kit.exchange.partial import ChunkDamagedError, ChunkSink
from peerloom.kit.exchange.waiting import run_to_end
from peerloom.v1.artifact_pb2 import GetChunkRequest


class Line(Protocol):
    """One way to one peer; fetches a chunk at a time."""

    async def receive(self, digest: str, index: int, sink: ChunkSink) -> None:
        """Fetches a chunk into its sink; raises as `BulkLine.receive` does, or a PeerloomError."""

    async def close(self) -> None:
        """Ends it."""


class TcpLine:
    """A bulk line, whose waiting, hashing and writing happen in a thread."""

    def __init__(self, line: BulkLine, threads: Executor) -> None:
        self._line, self._threads = line, threads

    async def receive(self, digest: str, index: int, sink: ChunkSink) -> None:
        """Fetches a chunk."""
        line = self._line
        await run_to_end(self._threads, lambda: line.receive(digest, index, sink), line.interrupt)

    async def close(self) -> None:
        """Closes the socket."""
        self._line.close()


class GrpcLine:
    """GetChunk over a channel that others use too; `slots` bounds the calls at once."""

    def __init__(self, peer: Peer, threads: Executor, slots: asyncio.Semaphore) -> None:
        self._peer, self._threads, self._slots = peer, threads, slots

    async def receive(self, digest: str, index: int, sink: ChunkSink) -> None:
        """Fetches a chunk."""
        async with self._slots:
            stream = self._peer.stream("GetChunk", GetChunkRequest(digest=digest, index=index))
            try:
                while (message := await self._next(stream)) is not None:
                    piece: bytes = message.piece
                    if len(piece) > sink.left_bytes:
                        raise ChunkDamagedError(f"more bytes than those of chunk {index} came")
                    await run_to_end(self._threads, partial(sink.write, piece))
            finally:
                await stream.aclose()
        await run_to_end(self._threads, sink.finish)

    async def close(self) -> None:
        """The channel is somebody else's."""

    async def _next(self, stream: AsyncGenerator[Any]) -> Any:
        try:
            async with asyncio.timeout(STALL_S):
                return await anext(stream, None)
        except TimeoutError:
            raise DeadlineError(
                f"The {self._peer.service} at {self._peer.address} sent nothing for {STALL_S:g} s.",
                reason="TRANSFER_STALLED",
            ) from None
