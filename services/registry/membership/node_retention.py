"""What the registry forgets: nodes that are gone for long, or make room for newcomers, and old events.

A node with an open session is never forgotten. Of those that are gone, the one gone for longest goes first.
"""

import asyncio
import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from peerloom.errors import PeerloomError
from peerloom.kit.clock import Clock
from peerloom.kit.logs import get_logger
from peerloom.services.registry.events import transitions
from peerloom.services.registry.events.feed import Feed
from peerloom.services.registry.events.transition_queue import TransitionQueue
from peerloom.services.registry.membership.table import Member, MembershipTable, moment_of
from peerloom.services.registry.store import RunSql, Store

INTERVAL_S = 10.0
BATCH_NODES = 128
_DAY_S = 86_400.0
_log = get_logger()


@dataclass(frozen=True)
class RetentionLimits:
    """Nodes known at most, days that one is remembered after it went, and events that are kept at least."""

    nodes: int
    days: float
    events: int


def longest_gone(members: Iterable[Member], count: int, before_s: float = float("inf")) -> list[Member]:
    """At most `count` nodes without a session, last seen before a time (wall seconds), oldest first."""
    gone = (one for one in members if one.session is None and one.record.last_seen_s < before_s)
    return heapq.nsmallest(count, gone, key=lambda member: member.record.last_seen_s)


class NodeRetention:
    """Forgets, in bounded steps."""

    def __init__(
        self,
        table: MembershipTable,
        commits: TransitionQueue,
        feed: Feed,
        store: Store,
        run_sql: RunSql,
        clock: Clock,
        limits: RetentionLimits,
    ) -> None:
        self._table = table
        self._commits = commits
        self._feed = feed
        self._store = store
        self._run_sql = run_sql
        self._clock = clock
        self._limits = limits

    async def make_room(self) -> bool:
        """Whether a newcomer may be admitted; at the limit the node that is gone for longest goes for it."""
        if len(self._table) < self._limits.nodes:
            return True
        # Some more than one: finding them takes a look at all nodes.
        for member in longest_gone(self._table.by_id.values(), 1 + self._limits.nodes // 1000):
            await self.forget(member, "The registry was full, and it was gone for longest.")
        return len(self._table) < self._limits.nodes

    async def forget(self, member: Member, reason: str) -> None:
        """Forgets a node, unless it has come back or is forgotten already."""
        async with self._table.lock(member.record.name):
            if member.session is None and self._table.holds(member):
                change = transitions.removed(member.record, reason, moment_of(self._clock))
                await self._commits.commit([change], lambda: self._table.remove(member))
                _log.info("node_forgotten", node=member.record.name, reason=reason)

    async def sweep(self) -> None:
        """Forgets what is due: at most 128 nodes, the sessions before, and events beyond twice the limit."""
        due_s = self._clock.wall_s() - self._limits.days * _DAY_S
        for member in longest_gone(self._table.by_id.values(), BATCH_NODES, due_s):
            await self.forget(member, f"It was gone for over {self._limits.days:g} days.")
        await self._run_sql(self._store.forget_sessions, due_s)
        if self._feed.newest - self._feed.forgotten > 2 * self._limits.events:
            through = self._feed.newest - self._limits.events
            await self._run_sql(self._store.forget_events, through)
            self._feed.forget(through)
            _log.info("events_forgotten", through=through)

    async def keep(self) -> None:
        """Sweeps until cancelled."""
        while True:
            try:
                await self.sweep()
            except PeerloomError as error:  # the database may be away, or full, for a while
                _log.warning("nothing_forgotten", reason=error.message)
            await asyncio.sleep(INTERVAL_S)
