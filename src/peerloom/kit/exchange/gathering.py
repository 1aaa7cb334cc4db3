"""One fetch: meets the holders, agrees on a manifest, brings the chunks and verifies the whole."""

from collections.abc import Callable, Sequence
from pathlib import Path

from peerloom.errors import DataLossError, PeerloomError, ResourceExhaustedError
from peerloom.kit.exchange.chunks import ChunkFetch, Surroundings
from peerloom.kit.exchange.company import Company
from peerloom.kit.exchange.manifest import same_content, span_of
from peerloom.kit.exchange.outcomes import Fetched, Gave, Lied
from peerloom.kit.exchange.partial import Partial
from peerloom.kit.exchange.sources import Source, most_told
from peerloom.kit.exchange.waiting import run_to_end
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import ArtifactHolder, Manifest

_log = get_logger()


class Gathering:
    """Fetches one artifact, once."""

    def __init__(
        self,
        around: Surroundings,
        digest: str,
        destination: Path,
        partial_path: Path,
        holders: Sequence[ArtifactHolder],
        on_manifest: Callable[[Manifest], None],
        on_begin: Callable[[Partial], None],
        on_chunk: Callable[[int, int, int], None],
    ) -> None:
        self._around, self._digest = around, digest
        self._destination, self._partial_path = destination, partial_path
        self._company = Company(digest, holders, around.find_holders, around.channels)
        self._on_manifest, self._on_begin, self._on_chunk = on_manifest, on_begin, on_chunk
        self._received_bytes = 0
        self._accused: set[str] = set()

    async def run(self) -> Fetched:
        """All of it; raises what `Fetcher.fetch` says."""
        try:
            await self._company.meet_first(self._around.options.patience_s)
            while True:
                manifest = most_told(self._company.sources.values())
                if manifest is None:
                    raise self._company.why_nobody()
                try:
                    kept_bytes = await self._fetch_by(manifest)
                    break
                except (DataLossError, ResourceExhaustedError) as error:
                    await self._disown(manifest, error)
            for source in self._others(manifest):
                self._accuse(source, "told a manifest that isn't the artifact's")
            self._thank()
            return Fetched(manifest, self._received_bytes, kept_bytes, self._company.givers())
        finally:
            await self._company.close()

    async def _fetch_by(self, manifest: Manifest) -> int:
        """Returns how many bytes were here from an earlier attempt."""
        threads = self._around.channels.threads
        await run_to_end(threads, lambda: self._on_manifest(manifest))
        partial = await run_to_end(threads, lambda: Partial(self._partial_path, manifest))
        try:
            await run_to_end(threads, partial.take_up)
            kept_bytes = sum(span_of(manifest, index).size_bytes for index in partial.held)
            self._on_begin(partial)
            chunks = ChunkFetch(self._around, self._company, partial, self._accuse, self._on_chunk)
            try:
                await chunks.run()
            finally:
                self._received_bytes += chunks.received_bytes
            await run_to_end(threads, lambda: partial.finish(self._destination))
            return kept_bytes
        finally:
            await run_to_end(threads, partial.close)

    async def _disown(self, manifest: Manifest, error: PeerloomError) -> None:
        """The manifest lied, or promises more than fits: those who told it are dropped, others tried."""
        has_lied = error.reason == "MANIFEST_LIES"
        tellers = [s for s in self._company.sources.values() if same_content(s.manifest, manifest)]
        if not has_lied and len(tellers) == len(self._company.sources):
            raise error
        for source in tellers:
            self._company.drop(source.holder.address, error.message, for_ever=True)
            if has_lied and source.held is None:  # a partial holder may have been told the lie itself
                self._accuse(source, "told a manifest that isn't the artifact's")
        if not self._company.sources:
            await self._company.meet_first(self._around.options.patience_s)

    def _others(self, manifest: Manifest) -> list[Source]:
        met = self._company.sources.values()
        return [s for s in met if s.held is None and not same_content(s.manifest, manifest)]

    def _accuse(self, source: Source, detail: str) -> None:
        if source.holder.address in self._accused:
            return  # once for a fetch, however many of its chunks were on their way
        self._accused.add(source.holder.address)
        _log.warning("peer_lied", digest=self._digest, peer=source.name, detail=detail)
        self._around.report(Lied(source.holder, self._digest, detail))

    def _thank(self) -> None:
        for source in self._company.all_met():
            if source.received_bytes:
                gave = Gave(source.holder, self._digest, source.received_bytes, source.busy_s)
                self._around.report(gave)
