"""Artifacts travel whole over a real connection, also over one that breaks, and bad ones are refused."""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from peerloom.artifacts.servicer import ArtifactServicer
from peerloom.artifacts.store import ArtifactStore
from peerloom.artifacts.transfer import digest_of, get_file, patience_s, put_file
from peerloom.errors import DataLossError, InvalidArgumentError, NotFoundError, ResourceExhaustedError
from peerloom.kit.dialing import ArtifactPeer, Dialer
from peerloom.kit.paging import encode_token
from peerloom.kit.server import Endpoint, Server
from peerloom.v1.artifact_pb2 import (
    Artifact,
    GetArtifactRequest,
    HasArtifactsRequest,
    ListArtifactsRequest,
    PutArtifactRequest,
)
from peerloom.v1.artifact_pb2_grpc import add_ArtifactServiceServicer_to_server

LIMIT_BYTES = 20_000_000
LIMIT_S = 60.0


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts", LIMIT_BYTES)


@pytest.fixture
async def peer(store: ArtifactStore) -> AsyncIterator[ArtifactPeer]:
    server = Server(Endpoint("127.0.0.1:0"), ["peerloom.v1.ArtifactService"])
    server.add_servicer(add_ArtifactServiceServicer_to_server, ArtifactServicer(store))
    await server.start({})
    async with Dialer().artifacts(server.address) as opened:
        yield opened
    await server.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(secrets.token_bytes(5_000_001))
    return path


def content(path: Path) -> bytes:
    return path.read_bytes()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def parts(*messages: PutArtifactRequest) -> AsyncIterator[PutArtifactRequest]:
    for message in messages:
        yield message


async def test_bytes_come_back_as_they_went(tmp_path: Path, peer: ArtifactPeer, source: Path) -> None:
    sent = await put_file(peer, source, Artifact(name="model", job_id="job-1"))
    assert (sent.size_bytes, sent.digest) == (5_000_001, digest_of(source))
    fetched = await get_file(peer, sent.digest, tmp_path / "copy")
    assert fetched == sent
    assert content(tmp_path / "copy") == content(source)


async def test_an_empty_artifact_is_one_too(tmp_path: Path, peer: ArtifactPeer) -> None:
    (tmp_path / "empty").touch()
    sent = await put_file(peer, tmp_path / "empty", Artifact(name="nothing"))
    assert (await get_file(peer, sent.digest, tmp_path / "copy")).size_bytes == 0
    assert (tmp_path / "copy").read_bytes() == b""


async def test_a_second_put_sends_nothing_and_says_so(peer: ArtifactPeer, source: Path) -> None:
    sent = await put_file(peer, source, Artifact())
    answer = await peer.send(peer.stub.PutArtifact, parts(PutArtifactRequest(header=sent)))
    assert answer.existed
    assert answer.artifact == sent


async def test_what_is_here_is_told_and_listed_in_pages(tmp_path: Path, peer: ArtifactPeer) -> None:
    digests = []
    for number in range(3):
        (tmp_path / str(number)).write_text(str(number))
        digests.append((await put_file(peer, tmp_path / str(number), Artifact())).digest)
    held = await peer.call(peer.stub.HasArtifacts, HasArtifactsRequest(digests=[*digests[:2], "0" * 64]))
    assert [artifact.digest for artifact in held.artifacts] == digests[:2]
    first = await peer.call(peer.stub.ListArtifacts, ListArtifactsRequest(page_size=2))
    request = ListArtifactsRequest(page_size=2, page_token=first.next_page_token)
    second = await peer.call(peer.stub.ListArtifacts, request)
    assert [kept.digest for kept in [*first.artifacts, *second.artifacts]] == sorted(digests)
    assert second.next_page_token == ""
    for foreign in (7, {}, True):  # tokens of other lists, or of nobody's
        request = ListArtifactsRequest(page_token=encode_token(foreign))
        with pytest.raises(InvalidArgumentError, match="page_token"):
            await peer.call(peer.stub.ListArtifacts, request)


async def test_bytes_that_are_not_the_digest_are_refused(
    tmp_path: Path, peer: ArtifactPeer, source: Path
) -> None:
    with pytest.raises(DataLossError, match="damaged on its way"):
        await put_file(peer, source, Artifact(digest="0" * 64))
    with pytest.raises(NotFoundError):
        await get_file(peer, "0" * 64, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


async def test_a_put_that_stops_early_is_refused(peer: ArtifactPeer) -> None:
    header = Artifact(digest=hashlib.sha256(b"hello").hexdigest(), size_bytes=5)
    with pytest.raises(DataLossError, match="was cut"):
        await peer.send(
            peer.stub.PutArtifact, parts(PutArtifactRequest(header=header), PutArtifactRequest(chunk=b"hel"))
        )


async def test_a_put_beyond_the_limit_is_refused_before_its_bytes_come(peer: ArtifactPeer) -> None:
    header = Artifact(digest="0" * 64, size_bytes=LIMIT_BYTES + 1)
    with pytest.raises(ResourceExhaustedError, match="don't fit"):
        await peer.send(peer.stub.PutArtifact, parts(PutArtifactRequest(header=header)))


async def test_headers_alone_open_no_file_and_take_no_upload_from_others(
    tmp_path: Path, peer: ArtifactPeer, source: Path
) -> None:
    """One host may have 32 uploads under way; the 33rd is refused at once. The folder stays empty."""
    held, gone = asyncio.Event(), list[ResourceExhaustedError]()

    async def stall(number: int) -> None:
        async def messages() -> AsyncIterator[PutArtifactRequest]:
            yield PutArtifactRequest(header=Artifact(digest=f"{number:064x}", size_bytes=9))
            await asyncio.Event().wait()

        try:
            await peer.send(peer.stub.PutArtifact, messages(), LIMIT_S)
        except ResourceExhaustedError as error:
            gone.append(error)
            held.set()

    stalled = [asyncio.create_task(stall(number)) for number in range(33)]
    async with asyncio.timeout(LIMIT_S):
        await held.wait()
    assert [error.reason for error in gone] == ["TOO_MANY_CALLS"]
    assert "try again" in gone[0].message
    assert names(tmp_path / "artifacts") == []
    for task in stalled:
        task.cancel()
    await asyncio.gather(*stalled, return_exceptions=True)
    assert (await put_file(peer, source, Artifact())).size_bytes == 5_000_001


@pytest.mark.parametrize(
    ("elapsed_s", "received_bytes", "left_s"),
    [(0.0, 0, 30.0), (20.0, 0, 10.0), (20.0, 10**6, 20.0), (20.0, 10**7, 30.0), (100.0, 10**6, -60.0)],
)
def test_an_upload_that_creeps_is_waited_for_less_and_less(
    elapsed_s: float, received_bytes: int, left_s: float
) -> None:
    assert patience_s(elapsed_s, received_bytes) == left_s


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        ((), "the first part"),
        ((PutArtifactRequest(chunk=b"x"),), "the first part"),
        ((PutArtifactRequest(header=Artifact(digest="short")),), "header.digest"),
        ((PutArtifactRequest(header=Artifact(digest="0" * 64, name="n" * 129)),), "header.name"),
        ((PutArtifactRequest(header=Artifact(digest="0" * 64, kind=99)),), "header.kind"),  # type: ignore[arg-type]  # wrong on purpose
        ((PutArtifactRequest(header=Artifact(digest="0" * 64)),) * 2, "part"),
        (
            (
                PutArtifactRequest(header=Artifact(digest="0" * 64, size_bytes=2_000_000)),
                PutArtifactRequest(chunk=b"x" * (1024 * 1024 + 1)),
            ),
            "chunk's length",
        ),
    ],
)
async def test_a_malformed_put_names_the_field(
    peer: ArtifactPeer, store: ArtifactStore, messages: tuple[PutArtifactRequest, ...], field: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await peer.send(peer.stub.PutArtifact, parts(*messages))
    assert caught.value.metadata["field"] == field
    assert store.used_bytes == 0


async def test_a_get_may_begin_anywhere_but_beyond_the_end(peer: ArtifactPeer, source: Path) -> None:
    sent = await put_file(peer, source, Artifact())
    request = GetArtifactRequest(digest=sent.digest, offset_bytes=4_999_999)
    pieces = [message.chunk async for message in peer.stream(peer.stub.GetArtifact, request)]
    assert b"".join(pieces) == content(source)[-2:]
    with pytest.raises(InvalidArgumentError, match="offset_bytes"):
        async for _ in peer.stream(
            peer.stub.GetArtifact, GetArtifactRequest(digest=sent.digest, offset_bytes=5_000_002)
        ):
            pass


class CuttingProxy:
    """Passes bytes on to a server and cuts the first connections after `cut_after_bytes` came back."""

    def __init__(self, target: str, cut_after_bytes: int, cuts: int) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._cut_after_bytes, self._cuts = cut_after_bytes, cuts
        self.connections = 0
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()
        # A transport closes its socket one turn of the loop after abort().
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._serving.add(asyncio.ensure_future(self._pass_on(reader, writer, self.connections)))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        limit = self._cut_after_bytes if number <= self._cuts else 10**12
        upstream_reader, upstream_writer = await asyncio.open_connection(self._host, self._port)
        forth = asyncio.create_task(_pump(reader, upstream_writer, 10**12))
        try:
            await _pump(upstream_reader, writer, limit)
        finally:
            forth.cancel()
            await asyncio.gather(forth, return_exceptions=True)
            for end in (writer, upstream_writer):
                end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit_bytes: int) -> None:
    passed_bytes = 0
    with suppress(ConnectionError):
        while passed_bytes < limit_bytes and (data := await reader.read(65536)):
            passed_bytes += len(data)
            writer.write(data)
            await writer.drain()


async def test_a_broken_fetch_goes_on_where_it_stopped(
    tmp_path: Path, peer: ArtifactPeer, source: Path
) -> None:
    """Cut after about 2 of 5 MB, twice: three connections suffice only if nothing is sent again."""
    sent = await put_file(peer, source, Artifact())
    proxy = CuttingProxy(peer.address, cut_after_bytes=2_000_000, cuts=2)
    async with Dialer().artifacts(await proxy.start()) as through:
        await get_file(through, sent.digest, tmp_path / "copy")
    await proxy.stop()
    assert digest_of(tmp_path / "copy") == sent.digest
    assert proxy.connections == 3
    assert names(tmp_path) == ["artifacts", "copy", "source"]
