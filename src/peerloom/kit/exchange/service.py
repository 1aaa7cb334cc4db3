"""What a service needs to take part in the exchange, put together."""

from collections.abc import Callable
from dataclasses import dataclass

from peerloom.kit.artifact_servicer import ArtifactServicer
from peerloom.kit.artifact_store import ArtifactStore
from peerloom.kit.exchange.bulk import BulkServer
from peerloom.kit.exchange.fetch import Fetcher
from peerloom.kit.exchange.holders import FindHolders
from peerloom.kit.exchange.outcomes import Gave, Lied
from peerloom.kit.exchange.stock import Stock
from peerloom.kit.exchange.throttle import Throttle


@dataclass(frozen=True)
class Exchange:
    """A store's servicer, its stock and its bulk port (None: none)."""

    servicer: ArtifactServicer
    stock: Stock
    bulk: BulkServer | None

    async def close(self) -> None:
        """Gives up fetches and ends bulk lines."""
        await self.stock.close()
        if self.bulk is not None:
            await self.bulk.close()


def open_exchange(
    store: ArtifactStore,
    find_holders: FindHolders,
    report: Callable[[Gave | Lied], object],
    *,
    bulk_host: str = "",
    tls_ca: str = "",
    upload_limit_bytes_per_s: float = 0.0,
) -> Exchange:
    """Fetches for the store and gives from it; the bulk port opens at `bulk_host` (empty: none).

    Raises UnavailableError when it can't listen there.
    """
    stock = Stock(store, Fetcher(find_holders, tls_ca=tls_ca, report=report))
    throttle = Throttle(upload_limit_bytes_per_s)
    bulk = BulkServer(stock.open_chunk, throttle) if bulk_host else None
    if bulk is not None:
        bulk.start(bulk_host)
    return Exchange(ArtifactServicer(store, stock, bulk, throttle), stock, bulk)
