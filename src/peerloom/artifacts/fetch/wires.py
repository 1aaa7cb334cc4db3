"""A server's side of one bulk connection on an event loop: plain, or by TLS 1.3 between members.

asyncio's own calls refuse TLS sockets, and its streams copy each byte several times. So a TLS socket is
tried, and tried again when the loop says that it may go on; file content is encrypted in a thread.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeVar

from peerloom.kit.principal import Principal
from peerloom.kit.roles import check_not_revoked

T = TypeVar("T")


class Wire(Protocol):
    """Sends and receives on one connection; one call at a time."""

    async def open(self) -> None:
        """Whatever comes before the first message. Raises OSError for a peer that isn't let in."""

    def check_peer(self) -> None:
        """Raises PermissionDeniedError for a peer that was turned out meanwhile."""

    async def receive(self, size_bytes: int) -> bytes:
        """At most so many bytes; empty at the end. Raises OSError."""

    async def send(self, data: bytes) -> None:
        """Sends all of it. Raises OSError."""

    def send_file(self, descriptor: int, at: int, stop: int) -> int:
        """Sends what the connection takes at once, waiting for the disk alone: for a thread.

        How many bytes went; 0 when it takes none now. Raises OSError, EOFError for a file that is shorter.
        """

    async def writable(self) -> None:
        """Waits until the connection takes more."""

    def close(self) -> None:
        """Gives up what it has opened itself, which isn't the connection."""


class PlainWire:
    """Plain TCP: a file's bytes go from the page cache to the socket, and never through Python."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def open(self) -> None:
        """Nothing comes first."""

    def check_peer(self) -> None:
        """Nobody is known."""

    async def receive(self, size_bytes: int) -> bytes:
        """What is there."""
        return await asyncio.get_running_loop().sock_recv(self._connection, size_bytes)

    async def send(self, data: bytes) -> None:
        """All of it."""
        await asyncio.get_running_loop().sock_sendall(self._connection, data)

    def send_file(self, descriptor: int, at: int, stop: int) -> int:
        """By sendfile."""
        try:
            sent = os.sendfile(self._connection.fileno(), descriptor, at, stop - at)
        except BlockingIOError:
            return 0
        return _some(sent)

    async def writable(self) -> None:
        """Waits for room."""
        await _ready(self._connection, for_writing=True)

    def close(self) -> None:
        """It opened nothing."""


class TlsWire:
    """TLS by a context that lets nobody in without a certificate; the connection is a non-blocking one.

    `revoked` gives the URIs of those who were turned out.
    """

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, revoked: Callable[[], Collection[str]]
    ) -> None:
        self._connection, self._revoked = connection, revoked
        self._peer: Principal | None = None
        self._tls = context.wrap_socket(
            connection.dup(), server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
        self._unsent: tuple[int, bytes] = (0, b"")

    async def open(self) -> None:
        """The handshake."""
        await self._try(self._tls.do_handshake)
        shown = self._tls.getpeercert() or {}
        names: Any = shown.get("subjectAltName", ())
        self._peer = Principal.parse(next((value for kind, value in names if kind == "URI"), ""))

    def check_peer(self) -> None:
        """By the certificate that it showed."""
        if self._peer is not None:
            check_not_revoked(self._peer, self._revoked())

    async def receive(self, size_bytes: int) -> bytes:
        """What is there."""
        return await self._try(lambda: self._tls.recv(size_bytes))

    async def send(self, data: bytes) -> None:
        """All of it."""
        view = memoryview(data)
        while view:
            sent = await self._try(lambda view=view: self._tls.send(view))  # type: ignore[misc]  # its default is it
            view = view[sent:]

    def send_file(self, descriptor: int, at: int, stop: int) -> int:
        """Read, encrypted and sent."""
        # TLS wants what it couldn't send to be offered again, the same bytes.
        begin, content = self._unsent
        if begin != at or not content:
            content = os.pread(descriptor, stop - at, at)
            _some(len(content))
        self._unsent = (at, content)
        try:
            sent = self._tls.send(content)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return 0
        self._unsent = (at + sent, content[sent:])
        return sent

    async def writable(self) -> None:
        """Waits for room."""
        await _ready(self._connection, for_writing=True)

    def close(self) -> None:
        """Closes our own descriptor."""
        self._tls.close()

    async def _try(self, work: Callable[[], T]) -> T:
        while True:
            try:
                return work()
            except ssl.SSLWantReadError:
                await _ready(self._connection, for_writing=False)
            except ssl.SSLWantWriteError:
                await _ready(self._connection, for_writing=True)


def _some(count: int) -> int:
    if not count:
        raise EOFError("the file is shorter than it was")
    return count


async def _ready(connection: socket.socket, *, for_writing: bool) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    if for_writing:
        loop.add_writer(connection, wake)
    else:
        loop.add_reader(connection, wake)
    try:
        await ready
    finally:
        if for_writing:
            loop.remove_writer(connection)
        else:
            loop.remove_reader(connection)
