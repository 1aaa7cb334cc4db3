"""Artifacts are fetched from several peers at once, whatever some of them do."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from exchange_parts import MIB, Swarm, bytes_of, digest_of_bytes, spoil, swarm_in

from peerloom.artifacts.fetch import bulk_server
from peerloom.artifacts.fetch.outcomes import Gave, Lied
from peerloom.artifacts.fetch.partial import Partial
from peerloom.artifacts.fetch.throttle import Throttle
from peerloom.artifacts.fetch.transports import BulkConnection
from peerloom.errors import DataLossError, NotFoundError, UnavailableError
from peerloom.kit.clock import ManualClock
from peerloom.kit.server_limits import raise_descriptor_limit

CONTENT = bytes_of(1, 9 * MIB + 12_345)
DIGEST = digest_of_bytes(CONTENT)


@pytest.fixture
async def swarm(tmp_path: Path) -> AsyncIterator[Swarm]:
    async with asyncio.timeout(60), swarm_in(tmp_path) as opened:
        yield opened


@pytest.mark.parametrize("with_bulk", [True, False])
async def test_all_holders_give_and_the_whole_is_right(tmp_path: Path, swarm: Swarm, with_bulk: bool) -> None:
    for name in ("ada", "bob", "cleo"):
        await swarm.donor(name, CONTENT, with_bulk=with_bulk, throttle=Throttle(2 * MIB))
    fetched = await (await swarm.fetcher(clock=ManualClock())).fetch(DIGEST, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    assert (fetched.received_bytes, fetched.kept_bytes, fetched.discarded_bytes) == (len(CONTENT), 0, 0)
    assert {holder.name for holder in fetched.givers} == {"ada", "bob", "cleo"}
    gave = [report for report in swarm.reports if isinstance(report, Gave)]
    assert sum(report.size_bytes for report in gave) == len(CONTENT)
    assert fetched.manifest.artifact.name == "thing-0"


async def idle_connections(port: int, count: int) -> list[socket.socket]:
    """Connections that ask for nothing."""
    opened, loop = list[socket.socket](), asyncio.get_running_loop()
    for _ in range(count):
        connection = socket.socket()
        connection.setblocking(False)
        opened.append(connection)
        await loop.sock_connect(connection, ("127.0.0.1", port))
    return opened


async def test_a_thousand_idle_connections_keep_nobody_from_bulk_transfers(
    tmp_path: Path, swarm: Swarm
) -> None:
    raise_descriptor_limit()
    donor = await swarm.donor("ada", CONTENT)
    assert donor.bulk is not None
    opened = await idle_connections(donor.bulk.port, 1005)
    connection = await asyncio.to_thread(BulkConnection, "127.0.0.1", donor.bulk.port)
    partial = Partial(tmp_path / "partial", donor.store.manifest(DIGEST))
    try:
        await asyncio.to_thread(connection.receive, DIGEST, 0, partial.sink(0))
        assert partial.held == {0}
        await (await swarm.fetcher()).fetch(DIGEST, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == CONTENT
    finally:
        partial.close()
        connection.close()
        for one in opened:
            one.close()


async def test_an_idle_connection_is_closed_after_a_while_and_its_fetcher_sees_that(
    monkeypatch: pytest.MonkeyPatch, swarm: Swarm
) -> None:
    monkeypatch.setattr(bulk_server, "IDLE_S", 0.05)
    donor = await swarm.donor("ada", b"")
    assert donor.bulk is not None
    connection = await asyncio.to_thread(BulkConnection, "127.0.0.1", donor.bulk.port)
    reader, writer = await asyncio.open_connection("127.0.0.1", donor.bulk.port)
    assert await reader.read() == b""
    assert not connection.is_open, "it was idle for longer"
    writer.close()
    connection.close()


async def test_a_fetch_goes_by_grpc_where_the_bulk_port_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swarm: Swarm
) -> None:
    monkeypatch.setattr(bulk_server, "CONNECTION_LIMIT", 0)
    await swarm.donor("ada", CONTENT)
    await (await swarm.fetcher()).fetch(DIGEST, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT


@pytest.mark.parametrize("content", [b"", b"x", bytes_of(2, MIB), bytes_of(3, MIB + 1)])
async def test_any_size_comes(tmp_path: Path, swarm: Swarm, content: bytes) -> None:
    await swarm.donor("ada", content)
    fetched = await (await swarm.fetcher()).fetch(digest_of_bytes(content), tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content
    assert fetched.received_bytes == len(content)


@pytest.mark.parametrize("with_bulk", [True, False])
async def test_a_wrong_chunk_ends_the_trust_in_its_sender_and_is_brought_by_another(
    tmp_path: Path, swarm: Swarm, with_bulk: bool
) -> None:
    for name in ("bad", "good"):  # slow enough that nobody is done before both were asked
        await swarm.donor(name, CONTENT, with_bulk=with_bulk, throttle=Throttle(4 * MIB))
    spoil(tmp_path / "bad", DIGEST, 0)  # whichever of the first two it is asked for, it is wrong
    spoil(tmp_path / "bad", DIGEST, MIB)
    fetched = await (await swarm.fetcher()).fetch(DIGEST, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    assert fetched.received_bytes == len(CONTENT) + fetched.discarded_bytes
    assert 1 <= fetched.discarded_bytes // MIB <= 2, "the wrong chunks, and no other"
    lies = [report for report in swarm.reports if isinstance(report, Lied)]
    assert [report.holder.name for report in lies] == ["bad"]


async def test_when_all_send_wrong_bytes_nothing_appears(tmp_path: Path, swarm: Swarm) -> None:
    await swarm.donor("bad", CONTENT)
    spoil(tmp_path / "bad", DIGEST, 4 * MIB)
    with pytest.raises(DataLossError, match="chunk 4 doesn't have the digest"):
        await (await swarm.fetcher()).fetch(DIGEST, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert [report.holder.name for report in swarm.reports if isinstance(report, Lied)] == ["bad"]


async def test_an_unknown_digest_is_not_found_at_once(tmp_path: Path, swarm: Swarm) -> None:
    fetcher = await swarm.fetcher()
    with pytest.raises(NotFoundError, match="Nobody holds the artifact 0000"):
        await fetcher.fetch("0" * 64, tmp_path / "copy")
    await swarm.donor("ada", CONTENT)
    with pytest.raises(NotFoundError):
        await fetcher.fetch("0" * 64, tmp_path / "copy")


async def test_holders_that_are_gone_are_named(tmp_path: Path, swarm: Swarm) -> None:
    ada = await swarm.donor("ada", CONTENT)
    await ada.kill()
    with pytest.raises(UnavailableError, match=ada.address):
        await (await swarm.fetcher(patience_s=0.5)).fetch(DIGEST, tmp_path / "copy")
