"""The durable side of the registry: SQL, called from one thread."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import sqlalchemy as sa

from peerloom.errors import FailedPreconditionError
from peerloom.kit.database import Database
from peerloom.kit.ids import new_request_id
from peerloom.services.registry import tables
from peerloom.services.registry.membership.node_records import (
    Event,
    LoadedRegistry,
    Moment,
    SessionRow,
    Transition,
)

# Runs a store's method where SQL may block: SqlThread.run, or in place.
RunSql = Callable[..., Awaitable[Any]]


class Store:
    """Nodes, sessions and events in one SQL database, with one writer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load(self, now: Moment) -> LoadedRegistry:
        """All nodes and open sessions; gives the registry its id on the first start.

        A session's monotonic start is counted back from `now` by the wall clock.
        """
        with self._database.write() as connection:
            registry_id = _registry_id(connection, now.wall_s)
            forgotten = connection.scalar(sa.select(tables.registry.c.forgotten_sequence)) or 0
            newest = connection.scalar(sa.select(sa.func.max(tables.events.c.sequence))) or 0
            records = [tables.record(row) for row in connection.execute(sa.select(tables.nodes))]
            is_open = tables.sessions.c.end_s.is_(None)
            found = connection.execute(sa.select(tables.sessions).where(is_open))
            return LoadedRegistry(
                registry_id, newest, forgotten, records, [tables.open_session(row, now) for row in found]
            )

    def append(self, transitions: Sequence[Transition], after_sequence: int) -> list[Event]:
        """Stores changes and their events, numbered from `after_sequence` + 1, in one transaction.

        Raises FailedPreconditionError when somebody else writes into the database.
        """
        events = [tables.event_of(number, t) for number, t in enumerate(transitions, after_sequence + 1)]
        try:
            with self._database.write() as connection:
                _write_nodes_and_sessions(connection, transitions)
                told = [
                    tables.event_row(e, t.record.node_id) for e, t in zip(events, transitions, strict=True)
                ]
                connection.execute(sa.insert(tables.events), told)
        except sa.exc.IntegrityError as error:
            raise FailedPreconditionError(
                "Another process writes into this registry's database. Stop it, then restart this one.",
                reason="DATABASE_SHARED",
            ) from error
        return events

    def forget_events(self, through: int) -> None:
        """Forgets events up to and with number `through`, but the newest of each node that there is.

        So whoever reads the log from its beginning learns of all nodes.
        """
        events, nodes = tables.events, tables.nodes
        later = events.alias()
        has_later = sa.exists().where(
            later.c.node_id == events.c.node_id, later.c.sequence > events.c.sequence
        )
        is_known = sa.exists().where(nodes.c.node_id == events.c.node_id)
        gone = sa.delete(events).where(events.c.sequence <= through, sa.or_(has_later, ~is_known))
        with self._database.write() as connection:
            connection.execute(gone)
            connection.execute(sa.update(tables.registry).values(forgotten_sequence=through))

    def forget_sessions(self, ended_before_s: float) -> None:
        """Forgets sessions that ended before a time (seconds since 1970)."""
        with self._database.write() as connection:
            connection.execute(sa.delete(tables.sessions).where(tables.sessions.c.end_s < ended_before_s))

    def events_after(self, sequence: int, limit: int) -> list[Event]:
        """The first `limit` events beyond `sequence`, oldest first."""
        query = sa.select(tables.events).where(tables.events.c.sequence > sequence)
        with self._database.read() as connection:
            found = connection.execute(query.order_by(tables.events.c.sequence).limit(limit))
            return [Event(r.sequence, r.kind, r.time_s, r.reason, r.online_s, r.snapshot) for r in found]

    def settled_after(self, sequence: int, limit: int) -> list[Event]:
        """The same, once no earlier write of this process can take effect any more."""
        self._database.settle()
        return self.events_after(sequence, limit)

    def sessions(
        self, node_id: str | None, *, interrupted_only: bool, before: int | None, limit: int
    ) -> list[SessionRow]:
        """The `limit` newest sessions numbered below `before`, of one node or of all."""
        columns = tables.sessions.c
        query = sa.select(tables.sessions).order_by(columns.number.desc()).limit(limit)
        if node_id is not None:
            query = query.where(columns.node_id == node_id)
        if interrupted_only:
            query = query.where(columns.interrupted == sa.true())
        if before is not None:
            query = query.where(columns.number < before)
        return self._session_rows(query)

    def find_session(self, session_id: str) -> SessionRow | None:
        """The session that a lease names, if there ever was one."""
        query = sa.select(tables.sessions).where(tables.sessions.c.session_id == session_id)
        return next(iter(self._session_rows(query)), None)

    def find_request(self, node_id: str, request_id: str) -> SessionRow | None:
        """The session that a registration attempt opened, if it did."""
        columns = tables.sessions.c
        query = sa.select(tables.sessions).where(columns.node_id == node_id, columns.request_id == request_id)
        return next(iter(self._session_rows(query)), None)

    def _session_rows(self, query: sa.Select[Any]) -> list[SessionRow]:
        with self._database.read() as connection:
            return [tables.session_row(row) for row in connection.execute(query)]


def _registry_id(connection: sa.Connection, wall_s: float) -> str:
    found = connection.scalar(sa.select(tables.registry.c.registry_id))
    if found is not None:
        return str(found)
    registry_id = new_request_id()
    connection.execute(sa.insert(tables.registry), [{"registry_id": registry_id, "created_s": wall_s}])
    return registry_id


def _write_nodes_and_sessions(connection: sa.Connection, transitions: Sequence[Transition]) -> None:
    # Each kind goes in one executemany. Within a kind the order is kept, so of two changes of one
    # node the later wins; a session is opened before it may be closed.
    nodes, sessions = tables.nodes, tables.sessions
    if first := [tables.node_row(t.record) for t in transitions if t.is_first]:
        connection.execute(sa.insert(nodes), first)
    if opened := [tables.opened_row(t.opened) for t in transitions if t.opened is not None]:
        connection.execute(sa.insert(sessions), opened)
    if closed := [tables.closed_row(t) for t in transitions if t.closed is not None]:
        close = sa.update(sessions).where(sessions.c.session_id == sa.bindparam("of_session"))
        connection.execute(close, closed)
    if known := [tables.node_change(t.record) for t in transitions if not t.is_first]:
        connection.execute(sa.update(nodes).where(nodes.c.node_id == sa.bindparam("of_node")), known)
    if removed := [{"of_node": t.record.node_id} for t in transitions if t.is_last]:
        for table in (sessions, nodes):
            connection.execute(sa.delete(table).where(table.c.node_id == sa.bindparam("of_node")), removed)
