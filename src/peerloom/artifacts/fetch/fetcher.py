"""Fetching an artifact by its digest, from several peers at once.

fetcher = Fetcher(holders_at(registry))
fetched = await fetcher.fetch(digest, Path("model.safetensors"))
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from peerloom.artifacts.fetch.chunks import ChunkFetch, FetchDependencies
from peerloom.artifacts.fetch.outcomes import Fetched, FetchOptions, Gave, Lied
from peerloom.artifacts.fetch.partial import Partial
from peerloom.artifacts.fetch.peers import FindHolders, Peers
from peerloom.artifacts.fetch.sources import PeerChannels, Source, most_told
from peerloom.artifacts.fetch.threads import run_to_end
from peerloom.artifacts.manifest import same_content, span_of
from peerloom.errors import DataLossError, PeerloomError, ResourceExhaustedError, UnavailableError
from peerloom.kit.checks import check_digest
from peerloom.kit.dialing import Dialer
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import ArtifactHolder, Manifest

_log = get_logger()


def _ignore(_: object) -> None:
    pass


class Fetcher:
    """Fetches artifacts; belongs to one event loop. Use it as an async context manager, or `close` it.

    `find_holders` says who holds a digest, `report` hears of each peer that gave or lied. Large artifacts
    come over their holders' bulk ports: by TLS where the dialer has an identity, else plain.
    """

    def __init__(
        self,
        find_holders: FindHolders,
        *,
        dialer: Dialer,
        report: Callable[[Gave | Lied], object] = _ignore,
        options: FetchOptions = FetchOptions(),  # noqa: B008  # frozen
    ) -> None:
        self._channels = PeerChannels(dialer, options.flight_limit + 4)
        seed = random.getrandbits(32)
        self._dependencies = FetchDependencies(find_holders, self._channels, report, options, seed)

    async def fetch(
        self,
        digest: str,
        destination: Path,
        *,
        holders: Sequence[ArtifactHolder] = (),
        partial_path: Path | None = None,
        on_manifest: Callable[[Manifest], None] = _ignore,
        make_room: Callable[[int], None] = _ignore,
        on_begin: Callable[[Partial], None] = _ignore,
        on_chunk: Callable[[int, int, int], None] = lambda received, size, peers: None,
        report: Callable[[Gave | Lied], object] | None = None,
    ) -> Fetched:
        """Fetches an artifact into the file `destination`, which appears whole and verified or not at all.

        `holders` are asked besides those that `find_holders` names. What has come so far lies at
        `partial_path` (by default a hidden file beside `destination`), also after a failure: the next attempt
        goes on from there. `on_manifest` is told in a thread what is about to come, `make_room` the bytes of
        each chunk that is here, and both may refuse by an error; `on_begin` is given the partial file once
        there is one; `on_chunk` is told the bytes that are here, those in all, and the number of peers;
        `report` hears of the peers instead of the fetcher's own.

        Raises NotFoundError when nobody holds it, DataLossError when all who do sent wrong bytes,
        UnavailableError when they can't be reached, ResourceExhaustedError when the disk is full,
        FailedPreconditionError while another process fetches it to the same place.
        """
        check_digest("digest", digest)
        beside = destination.with_name(f".{destination.name}.{digest[:12]}.part")
        dependencies = self._dependencies if report is None else replace(self._dependencies, report=report)
        fetch = ArtifactFetch(
            dependencies,
            digest,
            destination,
            partial_path or beside,
            holders,
            on_manifest,
            make_room,
            on_begin,
            on_chunk,
        )
        return await fetch.run()

    async def close(self) -> None:
        """Closes all channels."""
        await self._channels.close()

    async def __aenter__(self) -> "Fetcher":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class ArtifactFetch:
    """One fetch: meets the holders, agrees on a manifest, brings the chunks and verifies the whole."""

    def __init__(
        self,
        dependencies: FetchDependencies,
        digest: str,
        destination: Path,
        partial_path: Path,
        holders: Sequence[ArtifactHolder],
        on_manifest: Callable[[Manifest], None],
        make_room: Callable[[int], None],
        on_begin: Callable[[Partial], None],
        on_chunk: Callable[[int, int, int], None],
    ) -> None:
        self._dependencies, self._digest = dependencies, digest
        self._destination, self._partial_path = destination, partial_path
        self._peers = Peers(
            digest, holders, dependencies.find_holders, dependencies.channels, dependencies.options.clock
        )
        self._on_manifest, self._make_room = on_manifest, make_room
        self._on_begin, self._on_chunk = on_begin, on_chunk
        self._received_bytes = self._discarded_bytes = 0
        self._accused: set[str] = set()

    async def run(self) -> Fetched:
        """All of it; raises what `Fetcher.fetch` says."""
        try:
            await self._peers.meet_first(self._dependencies.options.patience_s)
            while True:
                manifest = most_told(self._peers.sources.values())
                if manifest is None:
                    raise self._peers.why_nobody()
                try:
                    kept_bytes = await self._fetch_by(manifest)
                    break
                except (DataLossError, ResourceExhaustedError, UnavailableError) as error:
                    await self._disown(manifest, error)
            for source in self._others(manifest):
                self._accuse(source, "told a manifest that isn't the artifact's")
            self._thank()
            return Fetched(
                manifest,
                self._received_bytes,
                kept_bytes,
                self._discarded_bytes,
                self._peers.givers(),
            )
        finally:
            await self._peers.close()

    async def _fetch_by(self, manifest: Manifest) -> int:
        """Returns how many bytes were here from an earlier attempt."""
        threads = self._dependencies.channels.threads
        await run_to_end(threads, lambda: self._on_manifest(manifest))
        partial = await run_to_end(threads, lambda: Partial(self._partial_path, manifest, self._make_room))
        try:
            await run_to_end(threads, partial.take_up)
            kept_bytes = sum(span_of(manifest, index).size_bytes for index in partial.held)
            self._on_begin(partial)
            chunks = ChunkFetch(self._dependencies, self._peers, partial, self._accuse, self._on_chunk)
            try:
                await chunks.run()
            finally:
                self._received_bytes += chunks.received_bytes
                self._discarded_bytes += chunks.discarded_bytes
            await run_to_end(threads, lambda: partial.finish(self._destination))
            return kept_bytes
        finally:
            await run_to_end(threads, partial.close)

    async def _disown(self, manifest: Manifest, error: PeerloomError) -> None:
        """The manifest lied, promises more than fits, or its chunks don't come.

        Those who told it are dropped, and others tried, who tell another.
        """
        has_lied = error.reason == "MANIFEST_LIES"
        others = [s for s in self._peers.sources.values() if not same_content(s.manifest, manifest)]
        if not has_lied and not others:
            raise error
        tellers = [s for s in self._peers.all_met() if same_content(s.manifest, manifest)]
        for source in tellers:
            self._peers.drop(source.holder.address, error.message, for_ever=True)
            if has_lied and source.held is None:  # a partial holder may have been told the lie itself
                self._accuse(source, "told a manifest that isn't the artifact's")
        if not self._peers.sources:
            await self._peers.meet_first(self._dependencies.options.patience_s)

    def _others(self, manifest: Manifest) -> list[Source]:
        met = self._peers.sources.values()
        return [s for s in met if s.held is None and not same_content(s.manifest, manifest)]

    def _accuse(self, source: Source, detail: str) -> None:
        if source.holder.address in self._accused:
            return  # once for a fetch, however many of its chunks were on their way
        self._accused.add(source.holder.address)
        _log.warning("peer_lied", digest=self._digest, peer=source.name, detail=detail)
        self._dependencies.report(Lied(source.holder, self._digest, detail))

    def _thank(self) -> None:
        for source in self._peers.all_met():
            if source.received_bytes:
                gave = Gave(source.holder, self._digest, source.received_bytes, source.busy_s)
                self._dependencies.report(gave)
