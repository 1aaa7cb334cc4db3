"""The registry's parts, put together."""

from dataclasses import dataclass

from peerloom.kit.clock import Clock
from peerloom.kit.tasks import ShieldedWork
from peerloom.services.registry.discovery.announcements import Announcements
from peerloom.services.registry.discovery.artifact_index import ArtifactIndex
from peerloom.services.registry.events.feed import Feed
from peerloom.services.registry.events.transition_queue import TransitionQueue
from peerloom.services.registry.membership.decisions import Timing
from peerloom.services.registry.membership.failure_detector import FailureDetector
from peerloom.services.registry.membership.node_records import Event
from peerloom.services.registry.membership.node_retention import NodeRetention, RetentionLimits
from peerloom.services.registry.membership.registrar import Registrar
from peerloom.services.registry.membership.table import MembershipTable, moment_of
from peerloom.services.registry.store import RunSql, Store


@dataclass(frozen=True)
class RegistryLimits:
    """How patient the registry is, how long an announcement stands (seconds), and what is remembered."""

    timing: Timing
    service_lease_s: float
    retention: RetentionLimits


@dataclass(frozen=True)
class Core:
    """All parts of a running registry but its server."""

    registry_id: str
    table: MembershipTable
    registrar: Registrar
    detector: FailureDetector
    retention: NodeRetention
    feed: Feed
    announcements: Announcements
    artifacts: ArtifactIndex
    commits: TransitionQueue
    work: ShieldedWork
    store: Store
    run_sql: RunSql
    limits: RegistryLimits
    clock: Clock


async def load_core(store: Store, run_sql: RunSql, limits: RegistryLimits, clock: Clock) -> Core:
    """A registry over what the store holds; open sessions go on, and silence counts after the grace."""

    async def read_past(after: int, limit: int) -> list[Event]:
        events: list[Event] = await run_sql(store.events_after, after, limit)
        return events

    loaded = await run_sql(store.load, moment_of(clock))
    artifacts, work = ArtifactIndex(), ShieldedWork()
    table = MembershipTable(loaded.records, loaded.sessions, on_session_end=artifacts.forget)
    feed = Feed(loaded.newest_sequence, read_past, forgotten=loaded.forgotten_sequence)
    commits = TransitionQueue(store, run_sql, feed)
    detector = FailureDetector(table, commits, work, limits.timing, clock)
    retention = NodeRetention(table, commits, feed, store, run_sql, clock, limits.retention)
    registrar = Registrar(
        table, commits, detector, work, store, run_sql, clock, retention, limits.retention.nodes
    )
    announcements = Announcements(limits.service_lease_s, clock)
    return Core(
        registry_id=loaded.registry_id,
        table=table,
        registrar=registrar,
        detector=detector,
        retention=retention,
        feed=feed,
        announcements=announcements,
        artifacts=artifacts,
        commits=commits,
        work=work,
        store=store,
        run_sql=run_sql,
        limits=limits,
        clock=clock,
    )
