"""Aim: with identities artifacts travel by TLS alone, between members alone.

Method: real donors and fetchers on loopback; a tap between them keeps every byte that passes.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from exchange_parts import MIB, Swarm, digest_of_bytes, swarm_in
from made_identities import Signer

from peerloom.artifacts.fetch.partial import Partial
from peerloom.artifacts.fetch.transports import BulkConnection
from peerloom.errors import UnavailableError
from peerloom.kit.identity import Identity

MARK = b"parameters of a model, in the clear "
CONTENT = MARK * (5 * MIB // len(MARK))
DIGEST = digest_of_bytes(CONTENT)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path / "identities")


@pytest.fixture
async def swarm(tmp_path: Path) -> AsyncIterator[Swarm]:
    async with asyncio.timeout(60), swarm_in(tmp_path) as opened:
        yield opened


class Tap:
    """Passes one connection on to a port, and keeps what the port answers."""

    def __init__(self, port: int) -> None:
        self._port, self.seen = port, b""

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer, keeps=True))

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keeps: bool = False
    ) -> None:
        while piece := await reader.read(65536):
            self.seen += piece if keeps else b""
            writer.write(piece)
        writer.close()


async def fetch_a_chunk(port: int, identity: Identity | None, swarm: Swarm, path: Path) -> set[int]:
    """Which chunks are there after the first one was asked for."""
    partial = Partial(path, swarm.donors[0].store.manifest(DIGEST))
    connection = await asyncio.to_thread(BulkConnection, "127.0.0.1", port, identity)
    try:
        assert connection.is_open
        await asyncio.to_thread(connection.receive, DIGEST, 0, partial.sink(0))
        assert connection.is_open, "nothing that nobody asked for lies unread"
        return set(partial.held)
    finally:
        connection.close()
        partial.close()


@pytest.mark.parametrize("with_identity", [True, False])
async def test_a_chunk_between_members_is_not_to_be_read_on_the_way(
    tmp_path: Path, signer: Signer, swarm: Swarm, with_identity: bool
) -> None:
    """The plain case shows that the tap sees what there is to see."""
    swarm.identity = signer.node("ada") if with_identity else None
    donor = await swarm.donor("ada", CONTENT)
    assert donor.bulk is not None
    tap = Tap(donor.bulk.port)
    async with tap as port:
        identity = signer.node("bob") if with_identity else None
        assert await fetch_a_chunk(port, identity, swarm, tmp_path / "partial") == {0}
    assert len(tap.seen) > MIB
    assert (MARK not in tap.seen) == with_identity


async def test_members_fetch_the_whole_by_tls(tmp_path: Path, signer: Signer, swarm: Swarm) -> None:
    swarm.identity = signer.node("ada")
    donor = await swarm.donor("ada", CONTENT)
    donor.store.manifest(DIGEST)
    fetcher = await swarm.fetcher()
    fetched = await fetcher.fetch(DIGEST, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    assert fetched.received_bytes == len(CONTENT)
    assert donor.bulk is not None
    assert donor.bulk.sent_bytes == len(CONTENT), "all of it came over the bulk port"


async def test_who_has_no_certificate_of_ours_gets_nothing(
    tmp_path: Path, signer: Signer, swarm: Swarm
) -> None:
    swarm.identity = signer.node("ada")
    donor = await swarm.donor("ada", CONTENT)
    assert donor.bulk is not None
    port = donor.bulk.port
    for number, stranger in enumerate([None, Signer(tmp_path / "elsewhere", serial=2).node("eve")]):
        with pytest.raises((OSError, EOFError)):
            await fetch_a_chunk(port, stranger, swarm, tmp_path / f"partial-{number}")

    def ask_without_certificate() -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=signer.node("eve").current.authorities.decode())
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            context.wrap_socket(plain, server_hostname="member.peerloom") as connection,
        ):
            return connection.recv(1)

    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        await asyncio.to_thread(ask_without_certificate)


async def test_a_member_takes_nothing_from_plain_peers_and_strangers(
    tmp_path: Path, signer: Signer, swarm: Swarm
) -> None:
    plain = await swarm.donor("plain", CONTENT)
    swarm.identity = Signer(tmp_path / "elsewhere", serial=2).node("eve")
    foreign = await swarm.donor("foreign", CONTENT)
    swarm.identity = signer.node("ada")
    fetcher = await swarm.fetcher(patience_s=0.0)
    with pytest.raises(UnavailableError, match="Its holders can't be reached"):
        await fetcher.fetch(DIGEST, tmp_path / "copy")
    assert [donor.bulk.sent_bytes for donor in (plain, foreign) if donor.bulk] == [0, 0]


async def test_who_was_turned_out_gets_no_further_chunk(tmp_path: Path, signer: Signer, swarm: Swarm) -> None:
    """Neither over a connection that was open before nor over a new one."""
    swarm.identity = signer.node("ada")
    donor, bob = await swarm.donor("ada", CONTENT), signer.node("bob")
    assert donor.bulk is not None
    partial = Partial(tmp_path / "partial", donor.store.manifest(DIGEST))
    connection = await asyncio.to_thread(BulkConnection, "127.0.0.1", donor.bulk.port, bob)
    try:
        await asyncio.to_thread(connection.receive, DIGEST, 0, partial.sink(0))
        swarm.identity.revoked = frozenset({bob.principal.uri})
        with pytest.raises((OSError, EOFError)):
            await asyncio.to_thread(connection.receive, DIGEST, 1, partial.sink(1))
    finally:
        connection.close()
        partial.close()
    with pytest.raises((OSError, EOFError)):
        await fetch_a_chunk(donor.bulk.port, bob, swarm, tmp_path / "again")


async def test_a_renewed_certificate_is_the_one_that_is_shown(
    tmp_path: Path, signer: Signer, swarm: Swarm
) -> None:
    swarm.identity = identity = signer.node("ada")
    donor = await swarm.donor("ada", CONTENT)
    assert donor.bulk is not None
    assert await fetch_a_chunk(donor.bulk.port, identity, swarm, tmp_path / "one") == {0}
    other = Signer(tmp_path / "next", serial=2)
    identity.renew(other.node("ada").current)
    assert await fetch_a_chunk(donor.bulk.port, other.node("bob"), swarm, tmp_path / "two") == {0}
