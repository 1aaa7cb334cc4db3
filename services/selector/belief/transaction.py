"""One transaction's bookkeeping: reads the accounts it touches, counts facts in them, writes all at once."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa

from peerloom.services.selector import tables
from peerloom.services.selector.belief.evidence_report import Evidence
from peerloom.services.selector.belief.formula import Reputation, Terms, Weights, update
from peerloom.services.selector.belief.lies import VOICES_WITHIN_S, barred_for_s, counted_kind
from peerloom.services.selector.belief.machine_speed import WorkerSpeed, machine_speeds
from peerloom.services.selector.belief.movement import counted_delay_s
from peerloom.services.selector.belief.track import HALF_LIFE_S, TRACK, Track, faded, observe
from peerloom.services.selector.catalog.entries import CatalogEntry, open_online_s
from peerloom.v1.selector_pb2 import EVIDENCE_KIND_WRONG_ANSWER

MAX_UNMET = 1000  # nodes that only evidence tells of
MAX_KEPT_LIARS = 1000  # that the registry has forgotten; beyond it the one met first is forgotten here too
_REPUTATION = Reputation._fields
_ENTRY = tuple(field.name for field in fields(CatalogEntry))
_TERMS = tuple(field.name for field in fields(Terms) if field.name != "weights")
_WEIGHTS = tuple(field.name for field in fields(Weights))
Record = tuple[Reputation, Track]
_NOTHING: Record = (Reputation(), Track())

# All nodes with their reputations and tracks.
ACCOUNTS = (
    sa.select(
        tables.nodes,
        *(tables.beliefs.c[name] for name in _REPUTATION),
        *(tables.tracks.c[name].label(f"track_{name}") for name in TRACK),
    )
    .join(tables.beliefs, tables.beliefs.c.node_id == tables.nodes.c.node_id)
    .join(tables.tracks, tables.tracks.c.node_id == tables.nodes.c.node_id)
)


class BeliefTransaction:
    """The accounts (catalog entry, reputation and track) of some nodes, open for changes in one transaction.

    `evidence_ids` are those that may be counted; the ones that are stored already change nothing.
    """

    def __init__(
        self,
        connection: sa.Connection,
        weights: Weights,
        node_ids: Iterable[str],
        evidence_ids: Iterable[str],
        half_life_s: float = HALF_LIFE_S,
    ) -> None:
        self._connection = connection
        self._weights = weights
        self._half_life_s = half_life_s
        rows = connection.execute(ACCOUNTS.where(tables.nodes.c.node_id.in_(sorted(set(node_ids))))).all()
        self._entries = {row.node_id: entry_from_row(row) for row in rows}
        self._records = {row.node_id: record_from_row(row) for row in rows}
        self._stored_nodes = frozenset(self._entries)
        ids = tables.evidence.c.evidence_id
        seen = sa.select(ids).where(ids.in_(sorted(set(evidence_ids))))
        self._seen = set(connection.scalars(seen))
        self._changed_entries: dict[str, CatalogEntry] = {}
        self._changed_records: dict[str, Record] = {}
        self._machine_gflops: dict[str, float] = {}
        self._unmet: deque[str] | None = None
        self._forgotten: list[str] = []
        self._evidence_rows: list[dict[str, Any]] = []
        self._history_rows: list[dict[str, Any]] = []

    @property
    def entries(self) -> list[CatalogEntry]:
        """The catalog entries that were set."""
        return list(self._changed_entries.values())

    @property
    def forgotten(self) -> list[str]:
        """The ids of the nodes that were forgotten, and are not there again."""
        return [node_id for node_id in self._forgotten if node_id not in self._entries]

    @property
    def records(self) -> dict[str, Record]:
        """The reputations and tracks that changed, by node id."""
        return dict(self._changed_records)

    def set_entry(self, entry: CatalogEntry) -> None:
        """Replaces the catalog entry of the entry's node."""
        self._entries[entry.node_id] = self._changed_entries[entry.node_id] = entry

    def forget(self, node_id: str) -> None:
        """Removes a node with all that it has earned."""
        self._entries.pop(node_id, None)
        self._records.pop(node_id, None)
        self._changed_entries.pop(node_id, None)
        self._changed_records.pop(node_id, None)
        self._evidence_rows = [row for row in self._evidence_rows if row["node_id"] != node_id]
        self._history_rows = [row for row in self._history_rows if row["node_id"] != node_id]
        self._stored_nodes -= {node_id}
        self._forgotten.append(node_id)

    def remove(self, node_id: str, now_s: float) -> None:
        """Forgets a node that the registry has forgotten, unless it is left out for its lies.

        Then it stays, without a name and nowhere to be found: a node that its owner removes, to come again
        under a new key, still speaks against that owner.
        """
        entry, (_, track) = self._entries.get(node_id), self._records.get(node_id, _NOTHING)
        lies = faded(track.lies, track.at_s, now_s, self._half_life_s)
        if entry is None or not entry.address or barred_for_s(lies, self._half_life_s) == 0:
            self.forget(node_id)
            return
        self.set_entry(CatalogEntry(node_id, address=entry.address, labels=entry.labels, owner=entry.owner))
        kept = sa.select(tables.nodes.c.node_id).where(tables.nodes.c.name == "")
        kept = kept.where(tables.nodes.c.address != "", tables.nodes.c.node_id != node_id)
        for one in list(self._connection.scalars(kept.order_by(tables.nodes.c.number)))[: 1 - MAX_KEPT_LIARS]:
            self.forget(one)

    def compare(self, evidence: Sequence[Evidence]) -> None:
        """Works out machine speeds from the facts of one report, by comparing the workers of each job."""
        jobs: dict[str, list[Evidence]] = {}
        for one in evidence:
            if one.speed_gflops > 0 and one.job_id:
                jobs.setdefault(one.job_id, []).append(one)
        for facts in jobs.values():
            speeds = machine_speeds([self._worker_speed(one) for one in facts])
            self._machine_gflops.update(zip((one.evidence_id for one in facts), speeds, strict=True))

    def _worker_speed(self, evidence: Evidence) -> WorkerSpeed:
        entry = self._entries.get(evidence.node_id)
        _, track = self._records.get(evidence.node_id, _NOTHING)
        return WorkerSpeed(evidence.speed_gflops, entry.speed_gflops if entry else 0.0, track.machine_gflops)

    def count(self, evidence: Evidence, now_s: float) -> bool:
        """Counts one fact, unless it was counted before; returns whether it was new."""
        if evidence.evidence_id in self._seen:
            return False
        self._seen.add(evidence.evidence_id)
        node_id = evidence.node_id
        if node_id not in self._entries:
            self._meet(node_id)
        before, track = self._records.get(node_id, _NOTHING)
        kind = counted_kind(evidence.kind, evidence.reporter, self._accusers(evidence, now_s))
        reputation, terms = update(
            before,
            kind,
            self._weights,
            delay_s=counted_delay_s(evidence.delay_s),
            online_s=evidence.online_s,
            open_online_s=open_online_s(self._entries[node_id].session_start_s, now_s),
        )
        track = observe(
            track,
            kind,
            time_s=min(evidence.time_s, now_s),  # a reporter from the future must not make all others old
            half_life_s=self._half_life_s,
            delay_s=evidence.delay_s,
            online_s=evidence.online_s,
            transfer_bytes=evidence.transfer_bytes,
            speed_gflops=self._machine_gflops.get(evidence.evidence_id, 0.0),
            slots=evidence.slots,
        )
        self._records[node_id] = self._changed_records[node_id] = (reputation, track)
        self._evidence_rows.append(asdict(evidence))
        self._history_rows.append(_history_row(evidence, reputation, terms, now_s))
        return True

    def _accusers(self, evidence: Evidence, now_s: float) -> set[str]:
        """Who told of wrong answers of this node lately, by our clock and not by theirs."""
        if evidence.kind != EVIDENCE_KIND_WRONG_ANSWER:
            return set()
        told, when = tables.evidence.c, tables.history.c
        stored = sa.select(told.reporter).join(tables.history, when.evidence_id == told.evidence_id)
        stored = stored.where(told.node_id == evidence.node_id, told.kind == evidence.kind)
        found = set(self._connection.scalars(stored.where(when.update_time_s > now_s - VOICES_WITHIN_S)))
        new = (row for row in self._evidence_rows if row["node_id"] == evidence.node_id)
        return found | {row["reporter"] for row in new if row["kind"] == evidence.kind}

    def _meet(self, node_id: str) -> None:
        # Reporters may be a moment ahead of the registry's log; who invents nodes displaces invented ones.
        if self._unmet is None:
            unmet = sa.select(tables.nodes.c.node_id).where(tables.nodes.c.name == "")
            unmet = unmet.where(tables.nodes.c.address == "")  # else it is a liar that was met, see `remove`
            self._unmet = deque(self._connection.scalars(unmet.order_by(tables.nodes.c.number)))
        while len(self._unmet) >= MAX_UNMET:
            self.forget(self._unmet.popleft())
        self._unmet.append(node_id)
        self.set_entry(CatalogEntry(node_id))

    def write(self) -> None:
        """Writes the entries and facts of this transaction; committing is the caller's."""
        self._delete(self._forgotten)
        old, new = self._split(self._changed_entries)
        self._insert(tables.nodes, [_entry_row(self._entries[node_id]) for node_id in new])
        self._update(tables.nodes, [_entry_row(self._entries[node_id]) for node_id in old])
        records = {node_id: self._records.get(node_id, _NOTHING) for node_id in new}
        self._insert(
            tables.beliefs, [_row(node_id, reputation) for node_id, (reputation, _) in records.items()]
        )
        self._insert(tables.tracks, [_row(node_id, track) for node_id, (_, track) in records.items()])
        old, _ = self._split(self._changed_records)
        records = {node_id: self._records[node_id] for node_id in old}
        self._update(
            tables.beliefs, [_row(node_id, reputation) for node_id, (reputation, _) in records.items()]
        )
        self._update(tables.tracks, [_row(node_id, track) for node_id, (_, track) in records.items()])
        self._insert(tables.evidence, self._evidence_rows)
        self._insert(tables.history, self._history_rows)

    def _split(self, node_ids: Iterable[str]) -> tuple[list[str], list[str]]:
        all_ids = list(node_ids)
        stored = self._stored_nodes
        return [i for i in all_ids if i in stored], [i for i in all_ids if i not in stored]

    def _delete(self, node_ids: Sequence[str]) -> None:
        for table in (tables.history, tables.evidence, tables.tracks, tables.beliefs, tables.nodes):
            if node_ids:
                gone = sa.delete(table).where(table.c.node_id == sa.bindparam("key"))
                self._connection.execute(gone, [{"key": node_id} for node_id in node_ids])

    def _insert(self, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self._connection.execute(sa.insert(table), rows)

    def _update(self, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            statement = sa.update(table).where(table.c.node_id == sa.bindparam("key"))
            self._connection.execute(statement, [{**row, "key": row["node_id"]} for row in rows])


def entry_from_row(row: sa.Row[Any]) -> CatalogEntry:
    """The catalog entry in a row of `nodes`."""
    values = {name: getattr(row, name) for name in _ENTRY}
    return CatalogEntry(**{**values, "accelerators": tuple(values["accelerators"])})


def _entry_row(entry: CatalogEntry) -> dict[str, Any]:
    return {**{name: getattr(entry, name) for name in _ENTRY}, "accelerators": list(entry.accelerators)}


def record_from_row(row: sa.Row[Any]) -> Record:
    """What a row of ACCOUNTS says that a node has earned."""
    reputation = Reputation(*(getattr(row, name) for name in _REPUTATION))
    return reputation, Track(*(getattr(row, f"track_{name}") for name in TRACK))


def _row(node_id: str, earned: Reputation | Track) -> dict[str, Any]:
    return {"node_id": node_id, **earned._asdict()}


def _history_row(evidence: Evidence, reputation: Reputation, terms: Terms, now_s: float) -> dict[str, Any]:
    return {
        "node_id": evidence.node_id,
        "number": reputation.updates,
        "evidence_id": evidence.evidence_id,
        "update_time_s": now_s,
        "belief": reputation.belief,
        **{name: getattr(terms, name) for name in _TERMS},
        **{f"weight_{name}": getattr(terms.weights, name) for name in _WEIGHTS},
    }


def terms_from_row(row: sa.Row[Any]) -> Terms:
    """The terms in a row of `history`."""
    weights = Weights(*(getattr(row, f"weight_{name}") for name in _WEIGHTS))
    return Terms(**{name: getattr(row, name) for name in _TERMS}, weights=weights)
