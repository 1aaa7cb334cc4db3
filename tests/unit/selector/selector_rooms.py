"""A selector without network and disk, for tests: the real store in memory, SQL in place."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

import sqlalchemy as sa

import peerloom.services.selector as selector
from peerloom.kit.clock import ManualClock
from peerloom.kit.database import SqlThread, open_database, storage_errors
from peerloom.services.selector.columns import NodeColumns
from peerloom.services.selector.evidence import Evidence
from peerloom.services.selector.explanations import Explanations
from peerloom.services.selector.ledger import Ledger
from peerloom.services.selector.roster import EventKind, NodeEvent, NodeState, RosterEntry
from peerloom.services.selector.rules import EvidenceKind, Weights
from peerloom.services.selector.store import SelectorStore

P = ParamSpec("P")
T = TypeVar("T")
MIGRATIONS = str(Path(selector.__file__).parent / "migrations")


class SqlInPlace(SqlThread):
    """A database in memory belongs to the thread that opened it, so its SQL runs there."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with storage_errors("the database"):
            return function(*args, **kwargs)


@dataclass
class Rooms:
    """The selector's rooms over one database; `again` is a restart."""

    engine: sa.Engine = field(default_factory=lambda: open_database("sqlite://", MIGRATIONS))
    clock: ManualClock = field(default_factory=ManualClock)
    weights: Weights = field(default_factory=Weights)

    def __post_init__(self) -> None:
        self.columns = NodeColumns()
        self.store = SelectorStore(self.engine, self.weights)
        self.explanations = Explanations(self.engine)
        self.sql = SqlInPlace(self.engine, "selector")
        self.ledger = Ledger(self.sql, self.store, self.columns, self.clock)

    def again(self) -> "Rooms":
        return Rooms(self.engine, self.clock, self.weights)

    def beliefs(self) -> dict[str, float]:
        """What memory holds."""
        return dict(zip(self.columns.node_ids, self.columns.belief.tolist(), strict=True))


def node_id(number: int) -> str:
    return f"node-{number:012x}"


def entry(number: int, **changes: object) -> RosterEntry:
    """A node as the registry might tell of it."""
    values: dict[str, object] = {
        "node_id": node_id(number),
        "name": f"n{number}",
        "address": f"10.0.0.1:{1000 + number}",
        "slots": 1,
        "state": NodeState.ALIVE,
    }
    return RosterEntry(**{**values, **changes})  # type: ignore[arg-type]  # fields by name


def fact(name: str, number: int = 1, kind: int = EvidenceKind.TRAINING, **values: float) -> Evidence:
    return Evidence(name, node_id(number), kind, 1_700_000_000.0, **values)  # type: ignore[arg-type]  # as above


def event(sequence: int, kind: EventKind, about: RosterEntry, **values: object) -> NodeEvent:
    facts: dict[str, object] = {"reason": "so it was", "online_s": 0.0, "time_s": 1_700_000_000.0}
    return NodeEvent("registry-1", sequence, kind, about, **{**facts, **values})  # type: ignore[arg-type]  # as above
