"""A selector without network and disk, for tests: the real store in memory, SQL in place."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

import numpy as np
from databases import in_memory

from peerloom.kit.clock import ManualClock
from peerloom.kit.database import Database, SqlThread, storage_errors
from peerloom.services.selector import tables
from peerloom.services.selector.belief.evidence_report import Evidence
from peerloom.services.selector.belief.explanations import Explanations
from peerloom.services.selector.belief.formula import Weights
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.catalog.entries import CatalogEntry, NodeEvent
from peerloom.services.selector.catalog.writer import CatalogWriter
from peerloom.services.selector.servicer import SelectorServicer
from peerloom.services.selector.store import SelectorStore
from peerloom.v1.registry_pb2 import NODE_STATE_ALIVE, NodeEventKind
from peerloom.v1.selector_pb2 import EVIDENCE_KIND_TRAINING, EvidenceKind

KINDS = [kind for kind in EvidenceKind.values() if kind]
P = ParamSpec("P")
T = TypeVar("T")


class SqlInPlace(SqlThread):
    """A database in memory belongs to the thread that opened it, so its SQL runs there."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with storage_errors("the database"):
            return function(*args, **kwargs)


@dataclass
class MemorySelector:
    """A selector's parts over one database in memory; `again` is a restart."""

    database: Database = field(default_factory=lambda: in_memory("selector", tables.metadata))
    clock: ManualClock = field(default_factory=ManualClock)
    weights: Weights = field(default_factory=Weights)

    def __post_init__(self) -> None:
        self.columns = NodeColumns()
        self.store = SelectorStore(self.database, self.weights)
        self.explanations = Explanations(self.database)
        self.sql = SqlInPlace(self.database)
        self.writer = CatalogWriter(self.sql, self.store, self.columns, self.clock)

    def servicer(self, reach_present: Callable[[float], Awaitable[bool]] | None = None) -> SelectorServicer:
        """What answers calls, with the printed policy and a seeded chance."""
        chance = np.random.default_rng(1)
        known = (self.columns, self.writer, reach_present or _at_present, self.explanations)
        return SelectorServicer(*known, self.sql, self.clock, chance, "thesis")

    def again(self) -> "MemorySelector":
        return MemorySelector(self.database, self.clock, self.weights)

    def beliefs(self) -> dict[str, float]:
        """What memory holds."""
        return dict(zip(self.columns.node_ids, self.columns.belief.tolist(), strict=True))


async def _at_present(limit_s: float) -> bool:
    """Nothing comes but what the test brings."""
    return False


def node_id(number: int) -> str:
    return f"node-{number:012x}"


def entry(number: int, **changes: object) -> CatalogEntry:
    """A node as the registry might tell of it."""
    values: dict[str, object] = {
        "node_id": node_id(number),
        "name": f"n{number}",
        "address": f"10.0.0.1:{1000 + number}",
        "slots": 1,
        "state": NODE_STATE_ALIVE,
    }
    return CatalogEntry(**{**values, **changes})  # type: ignore[arg-type]  # fields by name


def fact(name: str, number: int = 1, kind: int = EVIDENCE_KIND_TRAINING, **values: float) -> Evidence:
    return Evidence(name, node_id(number), kind, 1_700_000_000.0, **values)  # type: ignore[arg-type]  # as above


def event(sequence: int, kind: NodeEventKind.ValueType, about: CatalogEntry, **values: object) -> NodeEvent:
    facts: dict[str, object] = {"reason": "so it was", "online_s": 0.0, "time_s": 1_700_000_000.0}
    return NodeEvent("registry-1", sequence, kind, about, **{**facts, **values})  # type: ignore[arg-type]  # as above
