"""The chunks of one fetch, by one manifest: asked for as the schedule says, until all are here."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from peerloom.artifacts.fetch import chunk_schedule
from peerloom.artifacts.fetch.outcomes import FetchOptions, Gave, Lied
from peerloom.artifacts.fetch.partial import ChunkDamagedError, ChunkSink, OwnDiskError, Partial
from peerloom.artifacts.fetch.peers import FindHolders, Peers
from peerloom.artifacts.fetch.sources import PeerChannels, Source
from peerloom.artifacts.fetch.threads import run_to_end
from peerloom.artifacts.fetch.transports import ChunkTransport
from peerloom.artifacts.manifest import same_content, span_of
from peerloom.errors import NotFoundError, PeerloomError
from peerloom.kit.logs import get_logger

_log = get_logger()
_TAKEN_REST_S = 2.0
_FAILURES_LIMIT = 4
_LOOK_S = 1.0


@dataclass(frozen=True)
class FetchDependencies:
    """What all fetches of a fetcher share."""

    find_holders: FindHolders
    channels: PeerChannels
    report: Callable[[Gave | Lied], object]
    options: FetchOptions
    seed: int


class ChunkFetch:
    """Brings the chunks that `partial` lacks from `peers`.

    `accuse` is told of a peer that sent a wrong chunk; `on_chunk` of the bytes that are here, those in all
    and the number of peers. `received_bytes` came over the network, good or not; `discarded_bytes` are those
    of them that belong to no chunk that is here.
    """

    def __init__(
        self,
        dependencies: FetchDependencies,
        peers: Peers,
        partial: Partial,
        accuse: Callable[[Source, str], None],
        on_chunk: Callable[[int, int, int], None],
    ) -> None:
        self._dependencies, self._peers, self._partial = dependencies, peers, partial
        self._accuse, self._on_chunk = accuse, on_chunk
        self._manifest = manifest = partial.manifest
        count, held = len(manifest.chunk_digests), partial.held
        self._state = chunk_schedule.FetchState(
            chunk_count=count,
            chunk_bytes=manifest.chunk_bytes,
            missing=set(range(count)) - held,
            flight_limit=dependencies.options.flight_limit,
            seed=dependencies.seed,
        )
        self._here_bytes = sum(span_of(manifest, index).size_bytes for index in held)
        self._changed = asyncio.Event()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._fatal: PeerloomError | None = None
        self._progress_s = self._now()
        self.received_bytes = self.discarded_bytes = 0

    async def run(self) -> None:
        """Returns when all chunks are here, each verified; raises what `Fetcher.fetch` says."""
        alongside = [asyncio.create_task(work) for work in (self._hash_along(), self._look_around())]
        try:
            self._join()
            while not await self._act():
                pass
        finally:
            tasks = [*alongside, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _act(self) -> bool:
        """Carries out the next decision; True when all chunks are here."""
        self._changed.clear()
        now_s = self._now()
        if self._fatal is not None:
            raise self._fatal
        if now_s - self._progress_s > self._dependencies.options.patience_s:
            raise self._peers.why_stuck(len(self._state.missing))
        match chunk_schedule.next_step(self._state, now_s):
            case chunk_schedule.AllHere():
                return True
            case chunk_schedule.AskPeer() as ask:
                await self._ask(ask, now_s)
            case chunk_schedule.WaitLonger(until_s=until_s):
                limit_s = _LOOK_S if until_s is None else min(_LOOK_S, max(0.0, until_s - now_s))
                await self._wait(limit_s)
            case chunk_schedule.NoPeers():
                await self._peers.look()
                self._join()
                if not self._state.peers:
                    if not self._peers.has_hope():
                        raise self._peers.why_stuck(len(self._state.missing))
                    await self._wait(_LOOK_S)
        return False

    async def _wait(self, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _ask(self, ask: chunk_schedule.AskPeer, now_s: float) -> None:
        if ask.instead_of:
            await self._take_back(ask, now_s)
            if ask.index not in self._state.missing or ask.peer not in self._state.peers:
                return  # it came after all, or the other one is gone meanwhile
        source, peer = self._peers.sources[ask.peer], self._state.peers[ask.peer]
        if not peer.in_flight:
            peer.pace = chunk_schedule.begun(peer.pace, now_s)
            source.busy_since_s = now_s
        peer.in_flight += 1
        self._state.flights[ask.index] = chunk_schedule.Flight(ask.peer, now_s, peer.in_flight)
        self._tasks[ask.index] = asyncio.create_task(self._fly(source, ask.index))

    async def _take_back(self, ask: chunk_schedule.AskPeer, now_s: float) -> None:
        """A late chunk's sender is no longer waited for; it may try others after a rest, one at a time."""
        task = self._tasks[ask.index]
        task.cancel()
        await asyncio.wait({task})
        slow = self._state.peers.get(ask.instead_of)
        if slow is not None:
            slow.pace = replace(slow.pace, window=1)
            slow.rest_until_s = now_s + _TAKEN_REST_S
        _log.info(
            "chunk_taken_back", digest=self._manifest.artifact.digest, chunk=ask.index, reason=ask.reason
        )

    async def _transport_to(self, source: Source) -> ChunkTransport:
        while source.idle:
            transport = source.idle.pop()
            if transport.is_open:
                return transport
            await transport.close()
        return await self._dependencies.channels.transport(source)

    async def _fly(self, source: Source, index: int) -> None:
        """Brings one chunk, and notes how that went."""
        address, sink = source.holder.address, self._partial.sink(index)
        transport: ChunkTransport | None = None
        size_bytes = sink.left_bytes
        try:
            transport = await self._transport_to(source)
            await transport.receive(self._manifest.artifact.digest, index, sink)
            source.idle.append(transport)
            transport = None
            self._came(source, index, size_bytes)
        except ChunkDamagedError as error:
            self._drop(address, str(error), for_ever=True)
            self._accuse(source, f"sent a wrong chunk: {error}")
        except NotFoundError as error:
            self._lost(source, index, error)
        except OwnDiskError as error:
            self._fatal = error.cause
        except (OSError, EOFError) as error:
            if sink.left_bytes == size_bytes:  # it takes no connection of ours: it has too many
                source.bulk_port = 0
            self._failed(source, error)
        except PeerloomError as error:
            self._failed(source, error)
        finally:
            self._landed(source, index, sink, size_bytes)
            if transport is not None:
                await transport.close()

    def _landed(self, source: Source, index: int, sink: ChunkSink, size_bytes: int) -> None:
        received_bytes = size_bytes - sink.left_bytes
        self.received_bytes += received_bytes
        if index in self._state.missing:
            self.discarded_bytes += received_bytes
        self._state.flights.pop(index, None)
        self._tasks.pop(index, None)
        peer = self._peer(source)
        if peer is not None:
            peer.in_flight -= 1
            if not peer.in_flight:
                source.busy_s += self._now() - source.busy_since_s
        self._changed.set()

    def _came(self, source: Source, index: int, size_bytes: int) -> None:
        now_s = self._now()
        source.received_bytes += size_bytes
        source.backoff.succeeded()
        self._progress_s = now_s
        self._state.missing.discard(index)
        peer = self._peer(source)
        if peer is not None:
            peer.pace = chunk_schedule.received(peer.pace, size_bytes, now_s)
        self._here_bytes += size_bytes
        self._on_chunk(self._here_bytes, self._manifest.artifact.size_bytes, len(self._state.peers))

    def _lost(self, source: Source, index: int, error: PeerloomError) -> None:
        peer = self._peer(source)
        if peer is not None and peer.held is not None:
            peer.held -= {index}
        else:
            self._drop(source.holder.address, error.message, for_ever=False)

    def _failed(self, source: Source, error: BaseException) -> None:
        pause_s = source.backoff.next_pause_s()
        address, reason = source.holder.address, str(error) or type(error).__name__
        peer = self._peer(source)
        if source.backoff.failures >= _FAILURES_LIMIT:
            self._drop(address, reason, for_ever=False)
        elif peer is not None:
            peer.rest_until_s = self._now() + pause_s

    def _drop(self, address: str, reason: str, *, for_ever: bool) -> None:
        """The peer is asked no more; what is on its way from it fails or comes."""
        peer = self._state.peers.pop(address, None)
        source = self._peers.drop(address, reason, for_ever=for_ever)
        if peer is not None and source is not None and peer.in_flight:
            source.busy_s += self._now() - source.busy_since_s
        _log.info("peer_dropped", digest=self._manifest.artifact.digest, peer=address, reason=reason)

    async def _hash_along(self) -> None:
        """Hashes the whole as far as it is here, while the rest comes."""
        while True:
            if not await run_to_end(self._dependencies.channels.threads, self._partial.hash_further):
                waiting = self._changed
                await waiting.wait()
                await asyncio.sleep(0.02)

    async def _look_around(self) -> None:
        """Meets holders that come later, and learns which chunks partial ones have got."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._peers.look()
            self._join()
            await self._peers.refresh()
            for address, source in self._peers.sources.items():
                if address in self._state.peers:
                    self._state.peers[address].held = source.held
            self._changed.set()

    def _join(self) -> None:
        for address, source in self._peers.sources.items():
            if address not in self._state.peers and same_content(source.manifest, self._manifest):
                self._state.peers[address] = chunk_schedule.PeerState(held=source.held)

    def _peer(self, source: Source) -> chunk_schedule.PeerState | None:
        """The state of a peer that wasn't dropped since it became this source."""
        address = source.holder.address
        return self._state.peers.get(address) if self._peers.sources.get(address) is source else None

    def _now(self) -> float:
        return self._dependencies.options.clock.monotonic_s()
