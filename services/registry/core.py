"""The registry's parts, put together."""

from dataclasses import dataclass

from peerloom.kit.clock import Clock
from peerloom.services.registry.announcements import Announcements
from peerloom.services.registry.errands import Errands
from peerloom.services.registry.feed import Feed
from peerloom.services.registry.holdings import Holdings
from peerloom.services.registry.ledger import Ledger
from peerloom.services.registry.membership import Membership
from peerloom.services.registry.records import Event
from peerloom.services.registry.roster import Roster, moment_of
from peerloom.services.registry.rules import Timing
from peerloom.services.registry.store import RunSql, Store
from peerloom.services.registry.vigil import Vigil


@dataclass(frozen=True)
class Limits:
    """How patient the registry is, how long an announcement stands (seconds), and how many nodes it takes."""

    timing: Timing
    service_lease_s: float
    node_limit: int


@dataclass(frozen=True)
class Core:
    """A registry without its network face."""

    registry_id: str
    roster: Roster
    membership: Membership
    vigil: Vigil
    feed: Feed
    announcements: Announcements
    holdings: Holdings
    errands: Errands
    store: Store
    run_sql: RunSql
    limits: Limits
    clock: Clock


async def load_core(store: Store, run_sql: RunSql, limits: Limits, clock: Clock) -> Core:
    """Loads what the store holds; all open sessions go on, and their silence counts after the grace."""

    async def read_past(after: int, limit: int) -> list[Event]:
        events: list[Event] = await run_sql(store.events_after, after, limit)
        return events

    loaded = await run_sql(store.load, moment_of(clock))
    roster, errands = Roster(loaded.records, loaded.sessions), Errands()
    feed = Feed(loaded.newest_sequence, read_past)
    ledger = Ledger(store, run_sql, feed)
    vigil = Vigil(roster, ledger, errands, limits.timing, clock)
    membership = Membership(
        roster, ledger, vigil, errands, store, run_sql, clock, node_limit=limits.node_limit
    )
    announcements = Announcements(limits.service_lease_s, clock)
    return Core(
        registry_id=loaded.registry_id,
        roster=roster,
        membership=membership,
        vigil=vigil,
        feed=feed,
        announcements=announcements,
        holdings=Holdings(roster),
        errands=errands,
        store=store,
        run_sql=run_sql,
        limits=limits,
        clock=clock,
    )
