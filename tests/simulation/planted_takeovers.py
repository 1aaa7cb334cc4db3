"""The rules of taking over, broken one at a time; `planted` has the other rules of the product."""

import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

import sqlalchemy as sa

from peerloom.kit import database, lease
from peerloom.kit.database_clock import DatabaseClock
from peerloom.kit.lease_rules import LeaseRow
from peerloom.services.node_agent.workers.leader_discovery import LeaderDiscovery
from peerloom.services.registry import tables
from peerloom.services.registry.membership.node_records import Moment, OpenSession
from peerloom.services.trainer.workers.sessions import WorkerSessions


def epoch_is_not_raised() -> AbstractContextManager[Any]:
    """Whoever takes over leads in the epoch of the one before, whose writes are then not refused."""
    take = lease.take_lease

    def take_the_same(
        connection: sa.Connection, service: str, seen: LeaseRow | None, taken: LeaseRow
    ) -> bool:
        return take(connection, service, seen, replace(taken, epoch=max(1, taken.epoch - 1)))

    def admit(self: database.Database, epoch: int) -> None:
        self.epoch = max(epoch - 1, min(1, epoch))

    patches = ExitStack()
    patches.enter_context(mock.patch.object(lease, "take_lease", take_the_same))
    patches.enter_context(mock.patch.object(database.Database, "admit", admit))
    return patches


def woken_leader_goes_on() -> AbstractContextManager[Any]:
    """A leader that lost its lease serves on, and answers from its memory."""

    def beat(self: lease.Lease) -> bool:
        return True

    return mock.patch.object(lease.Lease, "beat", beat)


def leader_does_not_let_go() -> AbstractContextManager[Any]:
    """A leader that is cut from its database serves on until it hears that another one leads."""
    return mock.patch.object(lease.Lease, "_left_s", lambda self: None)


def lost_answer_is_a_failure() -> AbstractContextManager[Any]:
    """A commit whose answer was lost is taken for one that was not made."""
    return mock.patch.object(database, "is_outcome_unknown", lambda error: False)


def machines_clock_is_trusted() -> AbstractContextManager[Any]:
    """Who takes over counts open sessions by its own machine's wall clock, not by the one that all share."""
    count_back = tables.open_session

    def by_own_clock(row: Any, now: Moment) -> OpenSession:
        return count_back(row, replace(now, wall_s=time.time()))

    return mock.patch.object(tables, "open_session", by_own_clock)


def nobody_looks_for_the_leader() -> AbstractContextManager[Any]:
    """Workers hear of who took over from that one alone, which may be cut from their node."""

    async def look(self: LeaderDiscovery) -> None:
        pass

    return mock.patch.object(LeaderDiscovery, "look", look)


def one_that_finished_is_waited_for() -> AbstractContextManager[Any]:
    """Who has finished in an older generation is to say that it left it, which it never does."""
    return mock.patch.object(WorkerSessions, "_left_by_finishing", lambda *_: None)


def each_keeps_its_own_time() -> AbstractContextManager[Any]:
    """Nobody asks the database what time it is."""
    return mock.patch.object(DatabaseClock, "follow", lambda *_: None)
