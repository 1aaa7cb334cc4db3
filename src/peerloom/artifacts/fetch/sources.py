"""Peers that hold an artifact: met, compared with each other, and kept with open transports."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from peerloom.artifacts.fetch.transports import BulkConnection, BulkTransport, ChunkTransport, GrpcTransport
from peerloom.artifacts.manifest import check_manifest, facts_of
from peerloom.errors import PeerloomError
from peerloom.kit.backoff import Backoff
from peerloom.kit.dialing import ArtifactPeer, Dialer
from peerloom.kit.thread_pools import FETCH, named_pool
from peerloom.v1.artifact_pb2 import ArtifactHolder, GetManifestRequest, GetManifestResponse, Manifest

MANIFEST_S = 60.0
_CHANNEL_LIMIT = 64
_CALLS_AT_ONCE = 64
_FIRST_REST_S, _LONGEST_REST_S = 0.5, 4.0  # of a peer whose transfers fail


@dataclass
class Source:
    """A holder that told its manifest. `held` None: it has all chunks."""

    holder: ArtifactHolder
    peer: ArtifactPeer
    manifest: Manifest
    held: frozenset[int] | None
    bulk_port: int
    is_bulk_tls: bool = False
    idle: list[ChunkTransport] = field(default_factory=list)
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_REST_S, _LONGEST_REST_S))
    received_bytes: int = 0
    busy_s: float = 0.0
    busy_since_s: float = 0.0

    @property
    def name(self) -> str:
        """How people call it."""
        return self.holder.name or self.holder.address

    async def close(self) -> None:
        """Closes the transports that wait for a next chunk."""
        while self.idle:
            await self.idle.pop().close()


class PeerChannels:
    """Channels to peers, shared by all fetches, and the threads in which bytes are received."""

    def __init__(self, dialer: Dialer, threads: int) -> None:
        self._dialer = dialer
        self._peers: dict[str, tuple[ArtifactPeer, int]] = {}
        self.threads = named_pool(FETCH, threads)
        self.slots = asyncio.Semaphore(_CALLS_AT_ONCE)

    def take(self, address: str) -> ArtifactPeer:
        """The channel to an address, until `release` is called as often."""
        peer, users = self._peers.pop(address, (None, 0))
        peer = peer or self._dialer.artifacts(address, "peer")
        self._peers[address] = (peer, users + 1)
        return peer

    async def release(self, address: str) -> None:
        """Takes one `take` back; channels that nobody uses are closed when there are too many."""
        peer, users = self._peers[address]
        self._peers[address] = (peer, users - 1)
        for old, (unused, count) in list(self._peers.items()):
            if len(self._peers) > _CHANNEL_LIMIT and not count:
                del self._peers[old]
                await unused.close()

    async def transport(self, source: Source) -> ChunkTransport:
        """A new transport: the bulk port where there are many bytes and it can be used, else gRPC."""
        if self._may_use_bulk(source) and len(source.manifest.chunk_digests) > 1:
            host = source.holder.address.rpartition(":")[0]
            connect = partial(BulkConnection, host, source.bulk_port, self._dialer.identity)
            try:
                opened = await asyncio.get_running_loop().run_in_executor(self.threads, connect)
                return BulkTransport(opened, self.threads)
            except OSError:
                source.bulk_port = 0
        return GrpcTransport(source.peer, self.threads, self.slots)

    def _may_use_bulk(self, source: Source) -> bool:
        # Never less than what the calls have: a peer that says "plain" to one with an identity gets gRPC.
        return bool(source.bulk_port) and source.is_bulk_tls == (self._dialer.identity is not None)

    async def close(self) -> None:
        """Closes all channels."""
        for peer, _ in self._peers.values():
            with suppress(Exception):
                await peer.close()
        self._peers.clear()
        self.threads.shutdown(wait=False)


async def meet(holder: ArtifactHolder, digest: str, channels: PeerChannels) -> Source:
    """Asks a holder for its manifest; the channel is to be released.

    Raises NotFoundError when it holds nothing, DataLossError for a manifest that can't be true,
    UnavailableError or DeadlineError when it can't be reached.
    """
    peer = channels.take(holder.address)
    try:
        answer = await ask_manifest(peer, digest, channels)
        check_manifest(answer.manifest, digest)
    except BaseException:
        await channels.release(holder.address)
        raise
    return Source(holder, peer, answer.manifest, held_of(answer), answer.bulk_port, answer.is_bulk_tls)


async def ask_manifest(peer: ArtifactPeer, digest: str, channels: PeerChannels) -> GetManifestResponse:
    """What a peer says of an artifact, unchecked."""
    async with channels.slots:
        answer: GetManifestResponse = await peer.call(
            peer.stub.GetManifest, GetManifestRequest(digest=digest), MANIFEST_S
        )
    return answer


def held_of(answer: GetManifestResponse) -> frozenset[int] | None:
    """The chunks that a peer has; None: all."""
    if not answer.is_partial:
        return None
    return unpacked(answer.held_chunks, len(answer.manifest.chunk_digests))


def packed(held: Iterable[int], count: int) -> bytes:
    """Chunk numbers as bits, the lowest first."""
    bits = bytearray(-(-count // 8))
    for index in held:
        bits[index // 8] |= 1 << index % 8
    return bytes(bits)


def unpacked(bits: bytes, count: int) -> frozenset[int]:
    """The numbers below `count` whose bits are set."""
    return frozenset(index for index in range(min(count, 8 * len(bits))) if bits[index // 8] >> index % 8 & 1)


def most_told(sources: Iterable[Source]) -> Manifest | None:
    """The manifest to try first: the one that most whole holders tell, then most partial ones."""
    votes: Counter[str] = Counter()
    manifests: dict[str, Manifest] = {}
    for source in sources:
        facts = facts_of(source.manifest)
        manifests.setdefault(facts, source.manifest)
        votes[facts] += 1000 if source.held is None else 1
    return manifests[votes.most_common(1)[0][0]] if votes else None


def worst_of(errors: Iterable[PeerloomError]) -> str:
    """All that went wrong, once each, in one sentence."""
    return "; ".join(dict.fromkeys(error.message.rstrip(".") for error in errors))
