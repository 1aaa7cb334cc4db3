"""An artifact on a node, and its bulk port, asked as anybody may ask it."""

import asyncio
import secrets
import socket
import ssl
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from benchmarks.attack.system import System
from peerloom.artifacts.fetch.bulk_server import MESSAGE_LIMIT_BYTES, framed
from peerloom.v1.artifact_pb2 import BulkAnswer, GetChunkRequest, GetManifestRequest

ANSWER_S = 15.0
_SIZE_BYTES = 300_000
_MEMBER = "member.peerloom"


@dataclass(frozen=True)
class BulkTarget:
    """Where a chunk is to be had, and of which artifact."""

    port: int
    digest: str


async def bulk_target(system: System) -> BulkTarget:
    """A fresh artifact on the node "open", and that node's bulk port."""
    path = system.folder / "artifact.bin"
    path.write_bytes(secrets.token_bytes(_SIZE_BYTES))
    async with system.client() as client:
        digest = (await client.artifacts.put(path, copies=1, node="open")).digest
    async with system.operator().artifacts(system.addresses["open"]) as peer:
        manifest = await peer.call(peer.stub.GetManifest, GetManifestRequest(digest=digest))
    return BulkTarget(manifest.bulk_port, digest)


def ask_bulk_port(target: BulkTarget, context: ssl.SSLContext | None) -> bytes:
    """The first chunk's bytes. Raises OSError or EOFError when none come. Blocking: for threads."""
    with socket.create_connection(("127.0.0.1", target.port), ANSWER_S) as plain:
        connection = context.wrap_socket(plain, server_hostname=_MEMBER) if context else plain
        connection.sendall(framed(GetChunkRequest(digest=target.digest, index=0)))
        size_bytes = int.from_bytes(_exactly(connection, 4), "big")
        if size_bytes > MESSAGE_LIMIT_BYTES:
            raise EOFError("what came is no answer")
        try:
            answer = BulkAnswer.FromString(_exactly(connection, size_bytes))
        except DecodeError:
            raise EOFError("what came is no answer") from None
        if answer.error:
            raise EOFError(answer.error)
        return _exactly(connection, answer.size_bytes)


def _exactly(connection: socket.socket, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes:
        piece = connection.recv(size_bytes - len(received))
        if not piece:
            raise EOFError("the connection was closed")
        received += piece
    return received


async def open_idle(port: int, count: int) -> list[socket.socket]:
    """Connections that ask for nothing."""
    opened, loop = list[socket.socket](), asyncio.get_running_loop()
    for _ in range(count):
        connection = socket.socket()
        connection.setblocking(False)
        opened.append(connection)
        await loop.sock_connect(connection, ("127.0.0.1", port))
    return opened
