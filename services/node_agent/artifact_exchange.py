"""This node's part in the artifact exchange: it keeps, fetches, gives, tells of it, and bears witness."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from peerloom.artifacts.fetch.outcomes import Gave, Lied, evidence_of
from peerloom.artifacts.fetch.peers import holders_at
from peerloom.artifacts.known_holders import KnownHolders
from peerloom.artifacts.service import Exchange, open_exchange
from peerloom.artifacts.store import ArtifactStore
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import Dialer
from peerloom.kit.directory import Directory
from peerloom.kit.evidence import EvidenceReporter, MemoryOutbox
from peerloom.kit.server import Server
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.membership.advertising import Advertiser, PendingChanges
from peerloom.services.node_agent.membership.node_status import NodeStatus

# How long a job that runs nothing here keeps what was fetched for it: its workers may be about to start.
IDLE_LIMIT_S = 60.0
_RELEASE_INTERVAL_S = 5.0
_REMEMBERED = 1000


class UseKeeper:
    """Lets go what jobs used here that run no longer."""

    def __init__(self, store: ArtifactStore, is_active: Callable[[str], bool], clock: Clock) -> None:
        self._store, self._is_active, self._clock = store, is_active, clock
        self._idle_since_s: dict[str, float] = {}

    async def keep(self) -> None:
        """Looks every 5 s until cancelled."""
        while True:
            await asyncio.sleep(_RELEASE_INTERVAL_S)
            self.release_idle()

    def release_idle(self) -> None:
        """Lets go what belongs to jobs that have had neither worker nor reservation for a minute."""
        now_s, users = self._clock.monotonic_s(), self._store.holders()
        idle = {user for user in users if not self._is_active(user)}
        since = self._idle_since_s
        self._idle_since_s = {user: since.get(user, now_s) for user in idle}
        for user, idle_s in self._idle_since_s.items():
            if now_s - idle_s >= IDLE_LIMIT_S:
                self._store.release_all(user)


@dataclass(frozen=True)
class ArtifactPart:
    """All of it, put together: `exchange` serves, the others have something to be run as long as it does."""

    exchange: Exchange
    advertiser: Advertiser
    reporter: EvidenceReporter

    def start(self, server: Server, uses: UseKeeper) -> None:
        """Runs what has to be, as tasks of the server."""
        server.start_task("artifact advertising", self.advertiser.keep)
        server.start_task("evidence", self.reporter.report_forever)
        server.start_task("artifact uses", uses.keep)


def open_store(config: NodeConfig, pending: PendingChanges) -> ArtifactStore:
    """The node's store, whose changes are noted in `pending`. Reads the disk."""
    return ArtifactStore(config.state_folder() / "artifacts", config.artifact_limit_bytes, pending.note)


def open_artifacts(
    config: NodeConfig,
    dialer: Dialer,
    directory: Directory,
    store: ArtifactStore,
    pending: PendingChanges,
    status: NodeStatus,
    clock: Clock,
) -> ArtifactPart:
    """The node's part over its `store`, whose changes are noted in `pending`.

    Raises UnavailableError when the bulk port can't listen.
    """
    outbox = MemoryOutbox(_REMEMBERED)
    reporter = EvidenceReporter(outbox, directory.selector)

    def bear_witness(report: Gave | Lied) -> None:
        fact = evidence_of(report, status.node_id or "node", clock.wall_s())
        if fact is not None:
            outbox.add(fact)
            reporter.wake()

    exchange = open_exchange(
        store,
        holders_at(directory.registry, lambda: status.node_id),
        bear_witness,
        bulk_host=config.listen.rpartition(":")[0] if config.bulk_transfers else "",
        dialer=dialer,
        clock=clock,
        upload_limit_bytes_per_s=config.upload_limit_bytes_per_s,
        on_begun=pending.note,
        settle=lambda digest: pending.settle(),
        keep_known=KnownHolders(directory.registry).keep,
    )
    advertiser = Advertiser(directory.registry, lambda: (*store.digests(), *exchange.cache.fetching), pending)
    return ArtifactPart(exchange, advertiser, reporter)
