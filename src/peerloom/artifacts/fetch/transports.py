"""How a chunk's bytes come here: on the peer's bulk port where it offers one, else by gRPC."""

import asyncio
import select
import socket
import ssl
from collections.abc import AsyncGenerator
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from peerloom.artifacts.fetch.bulk_server import MESSAGE_LIMIT_BYTES, STALL_S, framed
from peerloom.artifacts.fetch.partial import PIECE_BYTES, ChunkDamagedError, ChunkSink
from peerloom.artifacts.fetch.threads import run_to_end
from peerloom.errors import DeadlineError, NotFoundError, UnavailableError
from peerloom.kit.dialing import ArtifactPeer
from peerloom.kit.identity import Identity
from peerloom.kit.printable import escaped
from peerloom.v1.artifact_pb2 import BulkAnswer, GetChunkRequest

CONNECT_S = 3.0
MEMBER = "member.peerloom"  # is in every member's certificate


class ChunkTransport(Protocol):
    """Brings one chunk at a time from one peer."""

    async def receive(self, digest: str, index: int, sink: ChunkSink) -> None:
        """Fetches a chunk into its sink; raises as `BulkConnection.receive` does, or a PeerloomError."""

    @property
    def is_open(self) -> bool:
        """Whether another chunk can be asked for: a peer may have closed what was idle."""

    async def close(self) -> None:
        """Gives up what it holds open."""


class BulkConnection:
    """A connection to a peer's bulk port; one question at a time. Blocking: for threads.

    With an `identity` the peer must be a member too, and all travels by TLS.
    """

    def __init__(self, host: str, port: int, identity: Identity | None = None) -> None:
        self._socket = socket.create_connection((host.strip("[]"), port), CONNECT_S)
        if identity is not None:
            # Any member will do: what it sends is checked against the digest, and may be had by every member.
            self._socket = _secured(self._socket, identity.client_context(), MEMBER)
        self._socket.settimeout(STALL_S)
        self._buffer = bytearray(PIECE_BYTES)

    def receive(self, digest: str, index: int, sink: ChunkSink) -> None:
        """Fetches a chunk into its sink.

        Raises NotFoundError or UnavailableError as the peer says, ChunkDamagedError for wrong bytes, OSError
        or EOFError when the connection breaks or stalls for 10 s.
        """
        self._socket.sendall(framed(GetChunkRequest(digest=digest, index=index)))
        answer = self._receive_answer()
        if answer.error:
            raise (NotFoundError if answer.is_not_found else UnavailableError)(escaped(answer.error, "\t\n"))
        if answer.size_bytes != sink.left_bytes:
            raise ChunkDamagedError(
                f"it has {answer.size_bytes:,} bytes instead of {sink.left_bytes:,} for chunk {index}"
            )
        view = memoryview(self._buffer)
        while sink.left_bytes:
            size_bytes = self._socket.recv_into(view, min(len(view), sink.left_bytes))
            if not size_bytes:
                raise EOFError("the peer closed the connection")
            sink.write(view[:size_bytes])
        sink.finish()

    @property
    def is_open(self) -> bool:
        """Whether the peer has neither closed it nor sent what nobody asked for."""
        readable = select.poll()
        readable.register(self._socket, select.POLLIN)
        return not readable.poll(0)

    def close(self) -> None:
        """Closes the socket; a thread that receives on it sees its end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def interrupt(self) -> None:
        """Makes a receive in another thread end; `close` is still to be called."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _receive_answer(self) -> BulkAnswer:
        size_bytes = int.from_bytes(self._exactly(4), "big")
        if size_bytes > MESSAGE_LIMIT_BYTES:
            raise ChunkDamagedError("its answer isn't one")
        try:
            return BulkAnswer.FromString(self._exactly(size_bytes))
        except DecodeError:
            raise ChunkDamagedError("its answer isn't one") from None

    def _exactly(self, size_bytes: int) -> bytes:
        received = b""
        while len(received) < size_bytes:
            piece = self._socket.recv(size_bytes - len(received))
            if not piece:
                raise EOFError("the peer closed the connection")
            received += piece
        return received


class BulkTransport:
    """A bulk connection whose waiting, hashing and writing happen in a thread."""

    def __init__(self, connection: BulkConnection, threads: Executor) -> None:
        self._connection, self._threads = connection, threads

    async def receive(self, digest: str, index: int, sink: ChunkSink) -> None:
        """Fetches a chunk."""
        connection = self._connection
        await run_to_end(self._threads, lambda: connection.receive(digest, index, sink), connection.interrupt)

    @property
    def is_open(self) -> bool:
        """Whether the peer waits for the next question."""
        return self._connection.is_open

    async def close(self) -> None:
        """Closes the socket."""
        self._connection.close()


class GrpcTransport:
    """GetChunk over a channel that others use too; `slots` bounds the calls at once."""

    def __init__(self, peer: ArtifactPeer, threads: Executor, slots: asyncio.Semaphore) -> None:
        self._peer, self._threads, self._slots = peer, threads, slots

    async def receive(self, digest: str, index: int, sink: ChunkSink) -> None:
        """Fetches a chunk."""
        async with self._slots:
            stream = self._peer.stream(self._peer.stub.GetChunk, GetChunkRequest(digest=digest, index=index))
            try:
                while (message := await self._next(stream)) is not None:
                    piece: bytes = message.piece
                    if len(piece) > sink.left_bytes:
                        raise ChunkDamagedError(f"more bytes than those of chunk {index} came")
                    await run_to_end(self._threads, partial(sink.write, piece))
            finally:
                await stream.aclose()
        await run_to_end(self._threads, sink.finish)

    @property
    def is_open(self) -> bool:
        """Channels connect again by themselves."""
        return True

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


def _secured(connection: socket.socket, context: ssl.SSLContext, host_name: str) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(connection, server_hostname=host_name, suppress_ragged_eofs=False)
    except BaseException:
        connection.close()
        raise
