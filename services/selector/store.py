"""The durable side of the selector: every change is one transaction. Called through SqlThread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from peerloom.services.selector import tables
from peerloom.services.selector.evidence import Evidence
from peerloom.services.selector.posting import ACCOUNTS, Posting, Record, entry_from_row, record_from_row
from peerloom.services.selector.roster import Cursor, NodeEvent, NodeState, RosterEntry, evidence_of
from peerloom.services.selector.rules import Weights
from peerloom.services.selector.track import HALF_LIFE_S

_CURSOR_ID = 1


@dataclass(frozen=True)
class Change:
    """What a transaction changed: roster entries, records by node id, and how many facts were new."""

    entries: list[RosterEntry]
    records: dict[str, Record]
    applied: int = 0

    @property
    def beliefs(self) -> dict[str, float]:
        """The beliefs that changed, by node id."""
        return {node_id: standing.belief for node_id, (standing, _) in self.records.items()}


@dataclass(frozen=True)
class Loaded:
    """What the database held at the start: the roster in the order of first meeting, and the cursor."""

    change: Change
    cursor: Cursor


class SelectorStore:
    """Roster, beliefs, evidence, history and cursor in one SQL database, with one writer."""

    def __init__(self, engine: sa.Engine, weights: Weights, half_life_s: float = HALF_LIFE_S) -> None:
        self._engine = engine
        self._weights = weights
        self._half_life_s = half_life_s

    def load(self) -> Loaded:
        """All nodes with their beliefs, and how far the registry's log was read."""
        with self._engine.connect() as connection:
            rows = connection.execute(ACCOUNTS.order_by(tables.nodes.c.number)).all()
            where = tables.cursor.c.id == _CURSOR_ID
            at = connection.execute(sa.select(tables.cursor).where(where)).one_or_none()
        records = {row.node_id: record_from_row(row) for row in rows}
        cursor = Cursor(at.registry_id, at.sequence) if at else Cursor()
        return Loaded(Change([entry_from_row(row) for row in rows], records), cursor)

    def report(self, evidence: Sequence[Evidence], clock_s: Callable[[], float]) -> Change:
        """Applies facts in their order, all or none; those that were applied before change nothing."""
        with self._engine.begin() as connection:
            node_ids, evidence_ids = [e.node_id for e in evidence], [e.evidence_id for e in evidence]
            posting = Posting(connection, self._weights, node_ids, evidence_ids, self._half_life_s)
            posting.compare(evidence)
            applied = sum(posting.post(one, clock_s()) for one in evidence)
            posting.write()
        return Change(posting.entries, posting.records, applied)

    def follow(self, events: Sequence[NodeEvent], clock_s: Callable[[], float]) -> Change:
        """Applies one or more consecutive events of one registry's log, and moves the cursor behind them."""
        found = [evidence_of(event) for event in events]
        with self._engine.begin() as connection:
            evidence_ids = [one.evidence_id for one in found if one]
            node_ids = [event.entry.node_id for event in events]
            posting = Posting(connection, self._weights, node_ids, evidence_ids, self._half_life_s)
            applied = 0
            for event, one in zip(events, found, strict=True):
                posting.set_entry(event.entry)
                applied += one is not None and posting.post(one, clock_s())
            posting.write()
            _move_cursor(connection, Cursor(events[-1].registry_id, events[-1].sequence))
        return Change(posting.entries, posting.records, applied)

    def start_again(self) -> Change:
        """Forgets where nodes are and how far we read, since another log begins; beliefs stay."""
        unknown = {"state": NodeState.UNKNOWN, "session_start_s": None}
        with self._engine.begin() as connection:
            connection.execute(sa.update(tables.nodes).values(unknown))
            _move_cursor(connection, Cursor())
            rows = connection.execute(sa.select(tables.nodes).order_by(tables.nodes.c.number)).all()
        return Change([entry_from_row(row) for row in rows], {})


def _move_cursor(connection: sa.Connection, to: Cursor) -> None:
    values = {"registry_id": to.registry_id, "sequence": to.sequence}
    moved = connection.execute(
        sa.update(tables.cursor).where(tables.cursor.c.id == _CURSOR_ID).values(values)
    )
    if moved.rowcount == 0:
        connection.execute(sa.insert(tables.cursor).values(id=_CURSOR_ID, **values))
