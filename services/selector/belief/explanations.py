"""Reads beliefs with all that explains them, in pages. Called through SqlThread."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from peerloom.kit.database import Database
from peerloom.services.selector.belief.evidence_report import Evidence
from peerloom.services.selector.belief.formula import Terms
from peerloom.services.selector.belief.transaction import terms_from_row
from peerloom.services.selector.tables import beliefs, evidence, history, nodes


@dataclass(frozen=True)
class Update:
    """What moved a belief, when (seconds since 1970), and every term."""

    terms: Terms
    evidence: Evidence
    time_s: float


@dataclass(frozen=True)
class Explanation:
    """A node's belief after its update number `updates`; `last` is that update, None before any."""

    node_id: str
    name: str
    belief: float
    updates: int
    last: Update | None


_EVIDENCE = (
    "kind",
    "time_s",
    "online_s",
    "transfer_bytes",
    "job_id",
    "detail",
    "speed_gflops",
    "slots",
    "reporter",
)
_COLUMNS = (
    nodes.c.name,
    *(column for column in history.c if column.name not in ("node_id", "belief", "number")),
    *(evidence.c[name] for name in _EVIDENCE),
    # `history` has a column `delay_s` too: there it is the mean of all delays.
    evidence.c.delay_s.label("evidence_delay_s"),
)
_NOW = (
    sa.select(beliefs.c.node_id, beliefs.c.belief, beliefs.c.updates.label("number"), *_COLUMNS)
    .join(nodes, nodes.c.node_id == beliefs.c.node_id)
    .outerjoin(history, (history.c.node_id == beliefs.c.node_id) & (history.c.number == beliefs.c.updates))
    .outerjoin(evidence, evidence.c.evidence_id == history.c.evidence_id)
)
_THEN = (
    sa.select(history.c.node_id, history.c.belief, history.c.number, *_COLUMNS)
    .join(nodes, nodes.c.node_id == history.c.node_id)
    .join(evidence, evidence.c.evidence_id == history.c.evidence_id)
)


class Explanations:
    """Reads beliefs as they are and as they were after each update."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_node(self, node_id: str) -> Explanation | None:
        """The belief of a node; None for one that isn't in the catalog."""
        return next(iter(self._read(_NOW.where(beliefs.c.node_id == node_id))), None)

    def highest_first(self, limit: int, after: tuple[float, str] | None) -> list[Explanation]:
        """Up to `limit` beliefs; `after` is the belief and node id of the last one seen."""
        query = _NOW.order_by(beliefs.c.belief.desc(), beliefs.c.node_id.desc()).limit(limit)
        if after is not None:
            belief, node_id = after
            same = (beliefs.c.belief == belief) & (beliefs.c.node_id < node_id)
            query = query.where((beliefs.c.belief < belief) | same)
        return self._read(query)

    def newest_first(self, node_id: str, limit: int, before: int | None) -> list[Explanation]:
        """Up to `limit` updates of a node; `before` is the number of the last one seen."""
        query = _THEN.where(history.c.node_id == node_id).order_by(history.c.number.desc()).limit(limit)
        return self._read(query if before is None else query.where(history.c.number < before))

    def _read(self, query: sa.Select[Any]) -> list[Explanation]:
        with self._database.read() as connection:
            return [_explanation(row) for row in connection.execute(query)]


def _explanation(row: sa.Row[Any]) -> Explanation:
    last = None
    if row.evidence_id is not None:
        facts = {name: getattr(row, name) for name in _EVIDENCE}
        fact = Evidence(row.evidence_id, row.node_id, delay_s=row.evidence_delay_s, **facts)
        last = Update(terms_from_row(row), fact, row.update_time_s)
    return Explanation(row.node_id, row.name, row.belief, row.number, last)
