"""A manifest is only words: what a cache holds goes for bytes that came, and a lie costs the liar."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from exchange_parts import MIB, Swarm, bytes_of, digest_of_bytes, swarm_in

from peerloom.artifacts.cache import ArtifactCache
from peerloom.artifacts.fetch.fetcher import Fetcher
from peerloom.artifacts.fetch.outcomes import FetchOptions, Lied
from peerloom.artifacts.store import ArtifactStore
from peerloom.errors import NotFoundError, PeerloomError
from peerloom.kit.dialing import Dialer
from peerloom.kit.server import Endpoint, Server
from peerloom.v1.artifact_pb2 import Artifact, ArtifactHolder, GetManifestResponse, Manifest
from peerloom.v1.artifact_pb2_grpc import ArtifactServiceServicer, add_ArtifactServiceServicer_to_server

LIMIT_BYTES = 9 * MIB
CONTENT = bytes_of(7, 3 * MIB)
DIGEST = digest_of_bytes(CONTENT)


class Liar(ArtifactServiceServicer):
    """Announces 8 MiB under any name, and sends none of them."""

    async def GetManifest(self, request: Any, context: Any) -> GetManifestResponse:  # noqa: N802  # the schema's
        artifact = Artifact(digest=request.digest, size_bytes=8 * MIB)
        digests = [bytes([number]) * 32 for number in range(8)]
        return GetManifestResponse(
            manifest=Manifest(artifact=artifact, chunk_bytes=MIB, chunk_digests=digests)
        )

    async def GetChunk(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  # the schema's
        for nothing in ():
            yield nothing


@pytest.fixture
async def swarm(tmp_path: Path) -> AsyncIterator[Swarm]:
    async with asyncio.timeout(60), swarm_in(tmp_path) as opened:
        yield opened


async def liar_in(swarm: Swarm, name: str) -> ArtifactHolder:
    server = Server(Endpoint("127.0.0.1:0"), ["peerloom.v1.ArtifactService"])
    server.add_servicer(add_ArtifactServiceServicer_to_server, Liar())
    swarm.stack.push_async_callback(server.close)
    await server.start({})
    return ArtifactHolder(node_id=f"node-{name}", name=name, address=server.address)


async def cache_in(swarm: Swarm, folder: Path, holders: Sequence[ArtifactHolder]) -> ArtifactCache:
    """A cache of 9 MiB that knows these holders and waits half a second for a chunk."""

    async def find(digest: str) -> Sequence[ArtifactHolder]:
        return holders

    options = FetchOptions(patience_s=0.5)
    fetcher = Fetcher(find, dialer=Dialer(), report=swarm.reports.append, options=options)
    cache = ArtifactCache(ArtifactStore(folder, LIMIT_BYTES), fetcher)
    swarm.stack.push_async_callback(cache.close)
    return cache


async def test_what_a_liar_announces_empties_no_cache(tmp_path: Path, swarm: Swarm) -> None:
    """6 of 9 MiB are taken, and 8 are announced: everything went before a byte had come."""
    donor = await swarm.donor("ada", *(bytes_of(number, 2 * MIB) for number in range(3)))
    cache = await cache_in(swarm, tmp_path / "cache", [donor.holder, await liar_in(swarm, "liar")])
    here = {digest_of_bytes(bytes_of(number, 2 * MIB)) for number in range(3)}
    for digest in sorted(here):
        await cache.obtain(digest, [donor.holder])
    with pytest.raises(PeerloomError, match="f" * 64):
        await cache.obtain("f" * 64)
    store = ArtifactStore(tmp_path / "cache", LIMIT_BYTES)
    assert (set(store.digests()), store.used_bytes) == (here, 6 * MIB)


async def test_the_artifact_comes_from_the_honest_one_though_more_liars_tell_of_it(
    tmp_path: Path, swarm: Swarm
) -> None:
    donor = await swarm.donor("ada", CONTENT)
    liars = [await liar_in(swarm, "liar"), await liar_in(swarm, "another")]
    cache = await cache_in(swarm, tmp_path / "cache", [*liars, donor.holder])
    assert (await cache.obtain(DIGEST)).size_bytes == len(CONTENT)
    told = {report.holder.name for report in swarm.reports if isinstance(report, Lied)}
    assert told == {"liar", "another"}


async def test_others_go_for_what_has_come(tmp_path: Path, swarm: Swarm) -> None:
    """4 MiB that came last stay beside the new 5: the oldest 4 went for them."""
    old, kept, new = (bytes_of(20 + number, size * MIB) for number, size in enumerate((4, 4, 5)))
    donor = await swarm.donor("ada", old, kept, new)
    cache = await cache_in(swarm, tmp_path / "cache", [donor.holder])
    for content in (old, kept, new):
        await cache.obtain(digest_of_bytes(content))
    assert (await cache.manifest(digest_of_bytes(kept)))[1] is None
    with pytest.raises(NotFoundError):
        await cache.manifest(digest_of_bytes(old))
