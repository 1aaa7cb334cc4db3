"""What a service keeps and fetches: each artifact once, however many ask; what has come is given on."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from peerloom.artifacts.disk import disk_errors
from peerloom.artifacts.fetch.bulk_server import OpenChunk
from peerloom.artifacts.fetch.fetcher import Fetcher
from peerloom.artifacts.fetch.outcomes import Gave, Lied
from peerloom.artifacts.fetch.partial import Partial
from peerloom.artifacts.fetch_room import FetchRoom
from peerloom.artifacts.manifest import chunk_bytes_for, chunk_count
from peerloom.artifacts.object_transfers import ObjectTransfers
from peerloom.artifacts.store import ArtifactStore
from peerloom.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PeerloomError,
)
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import Artifact, ArtifactHolder, Manifest

Report = Callable[[Gave | Lied], object]
_log = get_logger()
_AT_ONCE = 64


@dataclass(frozen=True)
class FetchProgress:
    """How far a fetch is; `artifact` is set once the whole is here."""

    received_bytes: int
    size_bytes: int
    peers: int
    artifact: Artifact | None = None


@dataclass
class _SharedFetch:
    task: asyncio.Task[Artifact] | None = None
    progress: FetchProgress = FetchProgress(0, 0, 0)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    watchers: int = 0

    def tell(self, progress: FetchProgress) -> None:
        self.progress = progress
        self.changed.set()
        self.changed = asyncio.Event()


class ArtifactCache:
    """A store with a way to fetch what it lacks. Without a fetcher, and without `objects`, it only gives.

    What an object store has comes from there, and from peers only where that fails.
    `on_begun` is called when a fetch has begun: what has come of it can be given on.
    """

    def __init__(
        self,
        store: ArtifactStore,
        fetcher: Fetcher | None = None,
        on_begun: Callable[[], object] = lambda: None,
        objects: ObjectTransfers | None = None,
    ) -> None:
        self._store, self._fetcher, self._objects = store, fetcher, objects
        self._orders: dict[str, _SharedFetch] = {}
        self._partials: dict[str, Partial] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._on_begun = on_begun

    async def obtain(
        self,
        digest: str,
        holders: Sequence[ArtifactHolder] = (),
        user: str = "",
        report: Report | None = None,
    ) -> Artifact:
        """Fetches an artifact unless the store has it; raises what `Fetcher.fetch` and the store raise.

        With a `user` the artifact is held for that one: `store.release` or `release_all` lets it go. `report`
        hears of the peers instead of the fetcher's own, if this call begins the fetch.
        """
        artifact = None
        async for progress in self.follow(digest, holders, user, report):
            artifact = progress.artifact
        assert artifact is not None, "the last progress brings the artifact"
        return artifact

    async def follow(
        self,
        digest: str,
        holders: Sequence[ArtifactHolder] = (),
        user: str = "",
        report: Report | None = None,
    ) -> AsyncIterator[FetchProgress]:
        """As `obtain`, telling how far the fetch is. A fetch that nobody follows any more is given up."""
        if user:
            self._store.hold(digest, user)
        try:
            artifact = await self._here(digest)
            if artifact is None:
                async for progress in self._follow_order(digest, holders, report):
                    yield progress
            else:
                yield FetchProgress(artifact.size_bytes, artifact.size_bytes, 0, artifact)
        except BaseException:
            if user:
                self._store.release(digest, user)
            raise

    async def bring(self, digest: str) -> None:
        """Has here what an object store keeps; nothing is done for what is here, or nowhere.

        Raises as `obtain`.
        """
        if self._objects is not None and self._objects.is_elsewhere(digest):
            await self.obtain(digest)

    async def manifest(self, digest: str) -> tuple[Manifest, frozenset[int] | None]:
        """An artifact's manifest and the chunks that are here; None: all. Raises NotFoundError."""
        partial = self._partials.get(digest)
        if partial is not None:
            return partial.manifest, partial.held
        await self.bring(digest)
        return await asyncio.to_thread(self._store.manifest, digest), None

    def open_chunk(self, digest: str, index: int) -> OpenChunk:
        """Opens the file that has a chunk; may wait for the disk. Raises NotFoundError."""
        partial = self._partials.get(digest)
        if partial is not None and index in partial.held:
            size_bytes = partial.manifest.artifact.size_bytes
            with suppress(FileNotFoundError):  # it became whole in this moment
                return _opened(os.open(partial.path, os.O_RDONLY | os.O_CLOEXEC), size_bytes, index)
        size_bytes = self._store.describe(digest).size_bytes
        if index >= chunk_count(size_bytes):
            limit = f"below {chunk_count(size_bytes)}, the artifact's number of chunks"
            raise InvalidArgumentError.of_field("index", index, limit)
        path = self._store.path(digest)
        with disk_errors(path.parent):
            try:
                return _opened(os.open(path, os.O_RDONLY | os.O_CLOEXEC), size_bytes, index)
            except FileNotFoundError:
                raise NotFoundError.of_name("artifact", digest, ()) from None

    @property
    def fetching(self) -> tuple[str, ...]:
        """What is on its way, with at least one chunk here."""
        return tuple(digest for digest, partial in list(self._partials.items()) if partial.held)

    async def close(self) -> None:
        """Gives up all fetches; what has come stays."""
        tasks = [order.task for order in self._orders.values() if order.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._fetcher is not None:
            await self._fetcher.close()

    async def _here(self, digest: str) -> Artifact | None:
        try:
            await asyncio.to_thread(self._store.path, digest)
            return self._store.describe(digest)
        except (NotFoundError, DataLossError):  # a damaged one was removed: it is fetched anew
            return None

    async def _follow_order(
        self, digest: str, holders: Sequence[ArtifactHolder], report: Report | None
    ) -> AsyncIterator[FetchProgress]:
        order = self._orders.get(digest)
        if order is None:
            order = self._orders[digest] = _SharedFetch()
            order.task = asyncio.create_task(self._bring_or_fetch(digest, holders, order, report))
        task = order.task
        assert task is not None, "an order is made with its task"
        order.watchers += 1
        try:
            while not task.done():
                changed = asyncio.ensure_future(order.changed.wait())
                await asyncio.wait({task, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if not task.done():
                    yield order.progress
            artifact = await task
            yield FetchProgress(artifact.size_bytes, artifact.size_bytes, order.progress.peers, artifact)
        finally:
            order.watchers -= 1
            if not order.watchers and not task.done():
                task.cancel()

    async def _bring_or_fetch(
        self, digest: str, holders: Sequence[ArtifactHolder], order: _SharedFetch, report: Report | None
    ) -> Artifact:
        failure: PeerloomError | None = None
        try:
            if self._objects is not None and self._objects.is_elsewhere(digest):
                try:
                    return await self._objects.restore(digest)
                except PeerloomError as error:
                    _log.warning("artifact_not_restored", digest=digest, reason=error.message)
                    failure = error
            return await self._fetch(digest, holders, order, report)
        except (NotFoundError, FailedPreconditionError) as error:
            raise failure or error from None
        finally:
            self._orders.pop(digest, None)

    async def _fetch(
        self, digest: str, holders: Sequence[ArtifactHolder], order: _SharedFetch, report: Report | None
    ) -> Artifact:
        if self._fetcher is None:
            raise FailedPreconditionError("This service doesn't fetch artifacts.", reason="NO_FETCHER")
        path = self._store.fetch_path(digest)
        whole, room = path.with_suffix(".whole.part"), FetchRoom(self._store, digest)

        def begin(partial: Partial) -> None:
            self._partials[digest] = partial

        def tell(received_bytes: int, size_bytes: int, peers: int) -> None:
            is_first = not order.progress.received_bytes
            order.tell(FetchProgress(received_bytes, size_bytes, peers))
            if is_first:
                self._on_begun()

        try:
            async with self._turns:  # a fetch's patience begins with its turn: a thousand at once starve none
                fetched = await self._fetcher.fetch(
                    digest,
                    whole,
                    holders=holders,
                    partial_path=path,
                    on_manifest=room.begin,
                    make_room=room.grow,
                    on_begin=begin,
                    on_chunk=tell,
                    report=report,
                )
            artifact = await asyncio.to_thread(self._store.admit, whole, fetched.manifest)
            room.hand_over()
            sources = [one.name or one.address for one in fetched.givers]
            _log.info(
                "artifact_fetched",
                digest=digest,
                bytes=fetched.received_bytes,
                discarded_bytes=fetched.discarded_bytes,
                peers=sources,
            )
            return artifact
        finally:
            self._partials.pop(digest, None)
            room.leave()


def _opened(descriptor: int, size_bytes: int, index: int) -> OpenChunk:
    chunk_bytes = chunk_bytes_for(size_bytes)
    offset_bytes = index * chunk_bytes
    return OpenChunk(descriptor, offset_bytes, min(chunk_bytes, size_bytes - offset_bytes))
