"""Gives chunks on a port of its own, beside gRPC: a question and an answer in protobuf, then the raw bytes.

With an identity all of it travels by TLS, and only between members. Without one nothing is encrypted, so that
is offered where gRPC is plain too; there the bytes go from the page cache to the socket by sendfile.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from google.protobuf.message import DecodeError, Message

from peerloom.artifacts.fetch.connection_table import ConnectionTable
from peerloom.artifacts.fetch.threads import run_to_end
from peerloom.artifacts.fetch.throttle import Throttle
from peerloom.artifacts.fetch.wires import PlainWire, TlsWire, Wire
from peerloom.errors import NotFoundError, PeerloomError, UnavailableError
from peerloom.kit.accepting import accepted
from peerloom.kit.identity import Identity
from peerloom.kit.logs import get_logger
from peerloom.kit.thread_pools import BULK, named_pool
from peerloom.v1.artifact_pb2 import BulkAnswer, GetChunkRequest

STALL_S = 10.0
IDLE_S = 5.0  # without a whole question; a fetcher opens another connection when it has one
MESSAGE_LIMIT_BYTES = 4096
_SEND_BYTES = 1024 * 1024
CONNECTION_LIMIT, CONNECTIONS_OF_HOST = 256, 64
_THREADS = 8
_log = get_logger()


@dataclass(frozen=True)
class OpenChunk:
    """Where a chunk's bytes lie in an open file; whoever gets it closes the descriptor."""

    descriptor: int
    offset_bytes: int
    size_bytes: int


class BulkServer:
    """Answers questions for chunks on a port of its own.

    `open_chunk` finds one (digest, index) and may wait for the disk; it raises a PeerloomError. With an
    `identity` only members are let in, by TLS.
    """

    def __init__(
        self,
        open_chunk: Callable[[str, int], OpenChunk],
        throttle: Throttle,
        identity: Identity | None = None,
    ) -> None:
        self._open_chunk, self._throttle = open_chunk, throttle
        self._identity = identity
        self._context: tuple[int, ssl.SSLContext] | None = None  # of which version of the identity
        self.is_tls = identity is not None
        self._threads = named_pool(BULK, _THREADS)
        self._connections = ConnectionTable[socket.socket](CONNECTION_LIMIT, CONNECTIONS_OF_HOST)
        self._serving: dict[socket.socket, asyncio.Task[None]] = {}
        self._accepting: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None
        self.port = 0
        self.told_port = 0  # where others reach it: another one behind NAT
        self.sent_bytes = 0  # of chunks

    def start(self, host: str) -> int:
        """Listens on a free port of `host`; returns it. Raises UnavailableError if it can't."""
        try:
            self._socket = socket.create_server((host.strip("[]"), 0), backlog=CONNECTION_LIMIT)
        except OSError as error:
            raise UnavailableError(f"can't listen on {host} for bulk transfers: {error}") from error
        self._socket.setblocking(False)
        self.port = self.told_port = int(self._socket.getsockname()[1])
        self._accepting = asyncio.create_task(self._accept(self._socket))
        return self.port

    async def close(self) -> None:
        """Ends all connections."""
        tasks = [*self._serving.values(), *filter(None, [self._accepting])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        self._threads.shutdown(wait=False)

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, address = await accepted(listening)
            except OSError as error:  # e.g. too many open files: those that are open go on
                _log.warning("bulk_connection_refused", reason=str(error))
                await asyncio.sleep(0.1)
                continue
            self._begin(connection, str(address[0]))

    def _begin(self, connection: socket.socket, host: str) -> None:
        is_taken, displaced = self._connections.enter(connection, host)
        if displaced is not None:
            self._serving[displaced].cancel()
        if not is_taken:
            connection.close()
            return
        task = self._serving[connection] = asyncio.create_task(self._serve(connection))
        task.add_done_callback(lambda _: self._end(connection))

    def _end(self, connection: socket.socket) -> None:
        self._connections.leave(connection)
        del self._serving[connection]
        connection.close()

    async def _serve(self, connection: socket.socket) -> None:
        wire: Wire | None = None
        try:
            wire = self._wire(connection)
            async with asyncio.timeout(IDLE_S):
                await wire.open()
            while True:
                self._connections.wait(connection)
                async with asyncio.timeout(IDLE_S):
                    request = GetChunkRequest.FromString(await _receive_message(wire))
                self._connections.work(connection)
                wire.check_peer()
                await self._answer(wire, request)
        except (OSError, EOFError, TimeoutError, DecodeError, PeerloomError):
            pass  # whoever asks notices
        finally:
            if wire is not None:
                wire.close()

    def _wire(self, connection: socket.socket) -> Wire:
        if self._identity is None:
            return PlainWire(connection)
        if self._context is None or self._context[0] != self._identity.version:
            context = self._identity.server_context()
            # A ticket would lie unread at a peer that waits, which takes what it didn't ask for as the end.
            context.num_tickets = 0
            self._context = (self._identity.version, context)
        identity = self._identity
        return TlsWire(connection, self._context[1], lambda: identity.revoked)

    async def _answer(self, wire: Wire, request: GetChunkRequest) -> None:
        loop = asyncio.get_running_loop()
        try:
            opening = loop.run_in_executor(self._threads, self._open_chunk, request.digest, request.index)
            chunk = await opening
        except PeerloomError as error:
            refusal = BulkAnswer(error=error.message[:1000], is_not_found=isinstance(error, NotFoundError))
            await wire.send(framed(refusal))
            return
        try:
            await wire.send(framed(BulkAnswer(size_bytes=chunk.size_bytes)))
            await self._send(wire, chunk)
        finally:
            os.close(chunk.descriptor)

    async def _send(self, wire: Wire, chunk: OpenChunk) -> None:
        at, end = chunk.offset_bytes, chunk.offset_bytes + chunk.size_bytes
        while at < end:
            size_bytes = min(end - at, _SEND_BYTES, self._throttle.piece_bytes)
            await self._throttle.take(size_bytes)
            stop = at + size_bytes
            while at < stop:
                # In a thread: it waits for the disk when the page cache doesn't have the bytes.
                sent = await run_to_end(self._threads, partial(wire.send_file, chunk.descriptor, at, stop))
                if not sent:
                    async with asyncio.timeout(STALL_S):
                        await wire.writable()
                at += sent
                self.sent_bytes += sent


def framed(message: Message) -> bytes:
    """A message behind its length in four bytes."""
    body = message.SerializeToString()
    return len(body).to_bytes(4, "big") + body


async def _receive_message(wire: Wire) -> bytes:
    size_bytes = int.from_bytes(await _exactly(wire, 4), "big")
    if size_bytes > MESSAGE_LIMIT_BYTES:
        raise EOFError("no question is so long")
    return await _exactly(wire, size_bytes)


async def _exactly(wire: Wire, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes:
        piece = await wire.receive(size_bytes - len(received))
        if not piece:
            raise EOFError("the peer closed the connection")
        received += piece
    return received
