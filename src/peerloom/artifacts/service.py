"""All that a service needs to keep, give and fetch artifacts, put together."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from peerloom.artifacts.cache import ArtifactCache
from peerloom.artifacts.fetch.bulk_server import BulkServer
from peerloom.artifacts.fetch.fetcher import Fetcher
from peerloom.artifacts.fetch.outcomes import FetchOptions, Gave, Lied
from peerloom.artifacts.fetch.peers import FindHolders
from peerloom.artifacts.fetch.throttle import Throttle
from peerloom.artifacts.known_holders import KeepKnown
from peerloom.artifacts.object_transfers import ObjectTransfers
from peerloom.artifacts.servicer import ArtifactServicer
from peerloom.artifacts.store import ArtifactStore
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import Dialer


@dataclass(frozen=True)
class Exchange:
    """A store's servicer, its cache and the server of its bulk port (None: none)."""

    servicer: ArtifactServicer
    cache: ArtifactCache
    bulk: BulkServer | None

    async def close(self) -> None:
        """Gives up fetches and ends bulk connections."""
        await self.cache.close()
        if self.bulk is not None:
            await self.bulk.close()


def open_exchange(
    store: ArtifactStore,
    find_holders: FindHolders,
    report: Callable[[Gave | Lied], object],
    *,
    bulk_host: str = "",
    dialer: Dialer,
    clock: Clock,
    upload_limit_bytes_per_s: float = 0.0,
    on_begun: Callable[[], object] = lambda: None,
    settle: Callable[[str], Awaitable[None]] | None = None,
    keep_known: KeepKnown,
    objects: ObjectTransfers | None = None,
) -> Exchange:
    """Fetches for the store and gives from it; the bulk port opens at `bulk_host` (empty: none).

    Where the dialer has an identity, bulk transfers are by TLS. `on_begun`, `objects`, `settle` (if
    None, that of `objects`) and `keep_known` are those of `ArtifactCache` and `ArtifactServicer`.

    Raises UnavailableError when it can't listen there.
    """
    fetcher = Fetcher(find_holders, dialer=dialer, report=report, options=FetchOptions(clock=clock))
    settle = settle or (objects.settle if objects is not None else None)
    cache = ArtifactCache(store, fetcher, on_begun, objects)
    throttle = Throttle(upload_limit_bytes_per_s, clock)
    bulk = BulkServer(cache.open_chunk, throttle, dialer.identity) if bulk_host else None
    if bulk is not None:
        bulk.start(bulk_host)
    return Exchange(ArtifactServicer(store, cache, bulk, throttle, settle, keep_known), cache, bulk)
