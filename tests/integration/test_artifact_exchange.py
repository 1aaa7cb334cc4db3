"""Real agents exchange artifacts: donors die, disks rot, fetchers come back, caches fill."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from exchange_parts import MIB, bytes_of, digest_of_bytes, spoil

from peerloom.artifacts.transfer import put_file
from peerloom.errors import (
    FailedPreconditionError,
    NotFoundError,
    PeerloomError,
    ResourceExhaustedError,
    UnavailableError,
)
from peerloom.kit.dialing import ArtifactPeer, Dialer, RegistryPeer
from peerloom.v1.artifact_pb2 import (
    Artifact,
    FetchArtifactRequest,
    FetchArtifactResponse,
    GetManifestRequest,
    HasArtifactsRequest,
    PinArtifactRequest,
    RemoveArtifactRequest,
)
from peerloom.v1.registry_pb2 import ListHoldersRequest
from peerloom.v1.selector_pb2 import EvidenceKind, ListBeliefHistoryRequest

# The fixture of conftest and what it gives; conftest modules can't be imported by name safely.
StartService = Callable[..., Any]
LIMIT_S = 30.0
CONTENT = bytes_of(11, 24 * MIB + 321)
DIGEST = digest_of_bytes(CONTENT)


@dataclass
class System:
    """A registry and agents that store only."""

    start_service: StartService
    folder: Path
    registry: Any
    registry_peer: RegistryPeer
    agents: dict[str, Any]

    def agent(self, name: str, *flags: str) -> Any:
        """Starts an agent, or starts it again on its state."""
        flags = ("--name", name, "--registry", self.registry.address, "--slots", "0", *flags)
        state = str(self.folder / name)
        self.agents[name] = self.start_service("node_agent", "--state", state, *flags)
        return self.agents[name]

    def peer(self, name: str) -> ArtifactPeer:
        """The artifact service of an agent."""
        return Dialer().artifacts(self.agents[name].address)

    async def put(self, name: str, content: bytes) -> str:
        """Gives an agent an artifact."""
        source = self.folder / f"source-{name}"
        source.write_bytes(content)
        async with self.peer(name) as peer:
            return (await put_file(peer, source, Artifact(name="thing"))).digest

    async def until_held_by(self, digest: str, *names: str) -> None:
        """Returns when the registry names these holders and no others."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                answer = await self.registry_peer.call(
                    self.registry_peer.stub.ListHolders, ListHoldersRequest(digest=digest)
                )
                if {holder.name for holder in answer.holders} == set(names):
                    return
                await asyncio.sleep(0)

    async def fetch(self, name: str, digest: str = DIGEST, **fields: Any) -> FetchArtifactResponse:
        """Has an agent fetch; the last message."""
        async with asyncio.timeout(LIMIT_S), self.peer(name) as peer:
            request = FetchArtifactRequest(digest=digest, **fields)
            return [told async for told in peer.stream(peer.stub.FetchArtifact, request)][-1]

    def fetched(self, name: str) -> dict[str, Any]:
        """What an agent's log says of its last fetch: bytes over the network, and the peers that gave."""
        return self.events(name, "artifact_fetched")[-1]

    def events(self, name: str, event: str) -> list[dict[str, Any]]:
        """The events of a name in an agent's log."""
        lines = [json.loads(line) for line in str(self.agents[name].log()).splitlines()]
        return [line for line in lines if line["event"] == event]


@pytest.fixture
async def system(start_service: StartService, tmp_path: Path) -> AsyncIterator[System]:
    registry = start_service("registry", "--state", str(tmp_path / "registry"))
    async with Dialer().registry(registry.address) as peer:
        yield System(start_service, tmp_path, registry, peer, {})


async def test_an_artifact_comes_from_all_who_hold_it_and_is_advertised(system: System) -> None:
    for name in ("ada", "bob", "new"):  # slow enough that nobody is done before both were asked
        system.agent(name, "--upload-limit-bytes-per-s", str(4 * MIB))
    for name in ("ada", "bob"):
        assert await system.put(name, CONTENT) == DIGEST
        async with system.peer(name) as peer:
            await peer.call(peer.stub.GetManifest, GetManifestRequest(digest=DIGEST))
    await system.until_held_by(DIGEST, "ada", "bob")
    last = await system.fetch("new")
    assert (last.received_bytes, last.artifact.name) == (len(CONTENT), "thing")
    fetched = system.fetched("new")
    assert fetched["bytes"] == len(CONTENT) + fetched["discarded_bytes"]
    # Where both run without a pause nothing comes twice; what a busy machine made late is named in the log.
    assert (fetched["discarded_bytes"] > 0) <= bool(system.events("new", "chunk_taken_back"))
    assert sorted(fetched["peers"]) == ["ada", "bob"]
    await system.until_held_by(DIGEST, "ada", "bob", "new")
    assert (system.folder / "new" / "artifacts" / DIGEST).read_bytes() == CONTENT


async def test_a_donor_s_death_costs_little_and_the_fetch_goes_on(system: System) -> None:
    for name in ("ada", "bob"):
        system.agent(name, "--upload-limit-bytes-per-s", str(10 * MIB))
        await system.put(name, CONTENT)
    await system.until_held_by(DIGEST, "ada", "bob")
    system.agent("new")
    last = FetchArtifactResponse()
    async with asyncio.timeout(LIMIT_S), system.peer("new") as peer:
        async for last in peer.stream(peer.stub.FetchArtifact, FetchArtifactRequest(digest=DIGEST)):
            if last.received_bytes >= 6 * MIB and system.agents["bob"].process.poll() is None:
                system.agents["bob"].kill()
    assert last.artifact.digest == DIGEST
    fetched = system.fetched("new")
    assert fetched["bytes"] == len(CONTENT) + fetched["discarded_bytes"]
    assert fetched["discarded_bytes"] <= 4 * MIB, "at most what was on its way is sent again"


async def test_a_rotten_chunk_is_found_and_told_to_the_selector(system: System) -> None:
    for name in ("bad", "good"):
        system.agent(name, "--upload-limit-bytes-per-s", str(6 * MIB))
        await system.put(name, CONTENT)
        async with system.peer(name) as peer:  # from here on its bytes are known to be sound
            await peer.call(peer.stub.GetManifest, GetManifestRequest(digest=DIGEST))
    await system.until_held_by(DIGEST, "bad", "good")
    for chunk in range(24):
        spoil(system.folder / "bad" / "artifacts", DIGEST, chunk * MIB)
    flags = ("--registry", system.registry.address)
    selector = system.start_service("selector", "--state", str(system.folder / "selector"), *flags)
    system.agent("new")
    await system.fetch("new")
    assert (system.folder / "new" / "artifacts" / DIGEST).read_bytes() == CONTENT
    kinds: dict[str, int] = {}
    async with asyncio.timeout(LIMIT_S), Dialer().selector(selector.address) as peer:
        while set(kinds) != {"bad", "good"}:
            for name in ("bad", "good"):
                with suppress(PeerloomError):  # the selector may not have met the nodes yet
                    request = ListBeliefHistoryRequest(node=name)
                    for update in (await peer.call(peer.stub.ListBeliefHistory, request)).updates:
                        kinds[name] = update.evidence.kind
                        assert DIGEST[:12] in update.evidence.detail
    assert kinds["bad"] == EvidenceKind.EVIDENCE_KIND_UNFINISHED
    assert kinds["good"] == EvidenceKind.EVIDENCE_KIND_TRANSFER


async def test_a_fetcher_that_died_goes_on_where_it_was(system: System) -> None:
    system.agent("ada", "--upload-limit-bytes-per-s", str(3 * MIB))
    await system.put("ada", CONTENT)
    await system.until_held_by(DIGEST, "ada")
    system.agent("new")
    with suppress(UnavailableError):
        async with asyncio.timeout(LIMIT_S), system.peer("new") as peer:
            async for told in peer.stream(peer.stub.FetchArtifact, FetchArtifactRequest(digest=DIGEST)):
                if told.received_bytes >= 8 * MIB:
                    system.agents["new"].kill()
    assert not (system.folder / "new" / "artifacts" / DIGEST).exists()
    system.agent("new")
    last = await system.fetch("new")
    assert last.artifact.digest == DIGEST
    assert system.fetched("new")["bytes"] <= len(CONTENT) - 6 * MIB


async def test_a_newcomer_gives_on_what_it_has_before_it_has_all(system: System) -> None:
    system.agent("ada", "--upload-limit-bytes-per-s", str(4 * MIB))
    await system.put("ada", CONTENT)
    await system.until_held_by(DIGEST, "ada")
    for name in ("new", "newer"):
        system.agent(name)
    fetching = asyncio.create_task(system.fetch("new"))
    await system.until_held_by(DIGEST, "ada", "new")
    assert not (system.folder / "new" / "artifacts" / DIGEST).exists()
    await asyncio.gather(fetching, system.fetch("newer"))
    assert sorted(system.fetched("newer")["peers"]) == ["ada", "new"]


async def test_pins_and_use_stay_when_the_cache_is_full_and_the_rest_goes(system: System) -> None:
    small = [bytes_of(number, 2 * MIB) for number in range(4)]
    system.agent("ada")
    digests = [await system.put("ada", content) for content in small]
    await system.until_held_by(digests[3], "ada")
    system.agent("new", "--artifact-limit-bytes", str(7 * MIB))
    async with system.peer("new") as peer:
        await system.fetch("new", digests[0])
        await peer.call(peer.stub.PinArtifact, PinArtifactRequest(digest=digests[0]))
        await system.fetch("new", digests[1], job_id="job-1")
        await system.fetch("new", digests[2])
        await system.fetch("new", digests[3])
        held = await peer.call(peer.stub.HasArtifacts, HasArtifactsRequest(digests=digests))
        assert [one.digest for one in held.artifacts] == [digests[0], digests[1], digests[3]]
        assert held.artifacts[0].pinned
        assert list(held.artifacts[1].used_by) == ["job-1"]
        for digest in digests[:2]:
            with pytest.raises(FailedPreconditionError, match=r"pinned here|in use here by job-1"):
                await peer.call(peer.stub.RemoveArtifact, RemoveArtifactRequest(digest=digest))
        await system.put("ada", CONTENT)
        await system.until_held_by(DIGEST, "ada")
        with pytest.raises(ResourceExhaustedError, match="don't fit"):
            await system.fetch("new", DIGEST)
        await peer.call(peer.stub.RemoveArtifact, RemoveArtifactRequest(digest=digests[3]))
        with pytest.raises(NotFoundError):
            await peer.call(peer.stub.RemoveArtifact, RemoveArtifactRequest(digest=digests[3]))
    await system.until_held_by(digests[3], "ada")


async def test_what_is_held_is_told_again_to_a_registry_that_forgot_it(system: System) -> None:
    system.agent("ada")
    await system.put("ada", CONTENT)
    await system.until_held_by(DIGEST, "ada")
    system.registry.kill()
    flags = ("--state", str(system.folder / "registry"), "--listen", system.registry.address)
    system.registry = system.start_service("registry", *flags)
    await system.until_held_by(DIGEST, "ada")


async def test_a_thousand_small_fetches_at_once(system: System) -> None:
    contents = [f"artifact {number}".encode() for number in range(100)]
    for name in ("ada", "bob"):
        system.agent(name)
    digests = [await system.put("ada", content) for content in contents]
    await system.until_held_by(digests[-1], "ada")
    async with system.peer("bob") as peer:

        async def fetch(digest: str) -> str:
            request = FetchArtifactRequest(digest=digest)
            told = [message async for message in peer.stream(peer.stub.FetchArtifact, request)]
            return str(told[-1].artifact.digest)

        async with asyncio.timeout(3 * LIMIT_S):
            found = await asyncio.gather(*(fetch(digests[number % 100]) for number in range(1000)))
    assert found == [digests[number % 100] for number in range(1000)]
