"""The durable side of the selector: every change is one transaction. Called through SqlThread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from peerloom.kit.database import Database
from peerloom.services.selector import tables
from peerloom.services.selector.belief.evidence_report import Evidence
from peerloom.services.selector.belief.formula import Weights
from peerloom.services.selector.belief.track import HALF_LIFE_S
from peerloom.services.selector.belief.transaction import (
    ACCOUNTS,
    BeliefTransaction,
    Record,
    entry_from_row,
    record_from_row,
)
from peerloom.services.selector.catalog.entries import CatalogEntry, Cursor, NodeEvent, evidence_of
from peerloom.v1.registry_pb2 import NODE_EVENT_KIND_REMOVED, NODE_STATE_UNSPECIFIED
from peerloom.v1.selector_pb2 import EvidenceKind

_CURSOR_ID = 1


@dataclass(frozen=True)
class CatalogChange:
    """What a transaction changed: catalog entries, records by node id, and ids of nodes that are forgotten.

    `kinds` has the kind of each fact that was new, as it was told.
    """

    entries: list[CatalogEntry]
    records: dict[str, Record]
    kinds: Sequence[EvidenceKind.ValueType] = ()
    forgotten: Sequence[str] = ()

    @property
    def applied(self) -> int:
        """How many facts were new."""
        return len(self.kinds)

    @property
    def beliefs(self) -> dict[str, float]:
        """The beliefs that changed, by node id."""
        return {node_id: reputation.belief for node_id, (reputation, _) in self.records.items()}


@dataclass(frozen=True)
class LoadedCatalog:
    """What the database held at the start: the catalog in the order of first meeting, and the cursor."""

    change: CatalogChange
    cursor: Cursor


class SelectorStore:
    """Catalog, beliefs, evidence, history and cursor in one SQL database, with one writer."""

    def __init__(self, database: Database, weights: Weights, half_life_s: float = HALF_LIFE_S) -> None:
        self._database = database
        self._weights = weights
        self._half_life_s = half_life_s

    def load(self) -> LoadedCatalog:
        """All nodes with their beliefs, and how far the registry's log was read."""
        with self._database.read() as connection:
            rows = connection.execute(ACCOUNTS.order_by(tables.nodes.c.number)).all()
            where = tables.cursor.c.id == _CURSOR_ID
            at = connection.execute(sa.select(tables.cursor).where(where)).one_or_none()
        records = {row.node_id: record_from_row(row) for row in rows}
        cursor = Cursor(at.registry_id, at.sequence) if at else Cursor()
        return LoadedCatalog(CatalogChange([entry_from_row(row) for row in rows], records), cursor)

    def settled_load(self) -> LoadedCatalog:
        """The same, once no earlier write of this process can take effect any more."""
        self._database.settle()
        return self.load()

    def report(self, evidence: Sequence[Evidence], clock_s: Callable[[], float]) -> CatalogChange:
        """Applies facts in their order, all or none; those that were applied before change nothing."""
        with self._database.write() as connection:
            node_ids, evidence_ids = [e.node_id for e in evidence], [e.evidence_id for e in evidence]
            transaction = BeliefTransaction(
                connection, self._weights, node_ids, evidence_ids, self._half_life_s
            )
            transaction.compare(evidence)
            kinds = [one.kind for one in evidence if transaction.count(one, clock_s())]
            transaction.write()
        return _change_of(transaction, kinds)

    def follow(self, events: Sequence[NodeEvent], clock_s: Callable[[], float]) -> CatalogChange:
        """Applies one or more consecutive events of one registry's log, and moves the cursor behind them."""
        found = [evidence_of(event) for event in events]
        with self._database.write() as connection:
            evidence_ids = [one.evidence_id for one in found if one]
            node_ids = [event.entry.node_id for event in events]
            transaction = BeliefTransaction(
                connection, self._weights, node_ids, evidence_ids, self._half_life_s
            )
            kinds = []
            for event, one in zip(events, found, strict=True):
                if event.kind == NODE_EVENT_KIND_REMOVED:
                    transaction.remove(event.entry.node_id, clock_s())
                    continue
                transaction.set_entry(event.entry)
                if one is not None and transaction.count(one, clock_s()):
                    kinds.append(one.kind)
            transaction.write()
            _move_cursor(connection, Cursor(events[-1].registry_id, events[-1].sequence))
        return _change_of(transaction, kinds)

    def start_again(self) -> CatalogChange:
        """Forgets where nodes are and how far we read, since another log begins; beliefs stay."""
        unknown = {"state": NODE_STATE_UNSPECIFIED, "session_start_s": None}
        with self._database.write() as connection:
            connection.execute(sa.update(tables.nodes).values(unknown))
            _move_cursor(connection, Cursor())
            rows = connection.execute(sa.select(tables.nodes).order_by(tables.nodes.c.number)).all()
        return CatalogChange([entry_from_row(row) for row in rows], {})


def _change_of(transaction: BeliefTransaction, kinds: Sequence[EvidenceKind.ValueType]) -> CatalogChange:
    return CatalogChange(transaction.entries, transaction.records, kinds, transaction.forgotten)


def _move_cursor(connection: sa.Connection, to: Cursor) -> None:
    values = {"registry_id": to.registry_id, "sequence": to.sequence}
    moved = connection.execute(
        sa.update(tables.cursor).where(tables.cursor.c.id == _CURSOR_ID).values(values)
    )
    if moved.rowcount == 0:
        connection.execute(sa.insert(tables.cursor).values(id=_CURSOR_ID, **values))
