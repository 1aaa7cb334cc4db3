"""One contract for the selector's store: SQLite in memory and a file, and PostgreSQL where one is given."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from databases import differences, new_database, open_held

import peerloom.services.selector as package
from peerloom.kit.database import Database
from peerloom.services.selector import tables
from peerloom.services.selector.belief.evidence_report import Evidence
from peerloom.services.selector.belief.explanations import Explanations
from peerloom.services.selector.belief.formula import Weights
from peerloom.services.selector.catalog.entries import CatalogEntry, Cursor, NodeEvent
from peerloom.services.selector.store import SelectorStore
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_EVENT_KIND_REGISTERED,
    NODE_STATE_ALIVE,
    NODE_STATE_DEAD,
    NODE_STATE_UNSPECIFIED,
)
from peerloom.v1.selector_pb2 import EVIDENCE_KIND_TRAINING

MIGRATIONS = Path(package.__file__).parent / "migrations"
NOW_S = 1_700_000_000.0
ADA, BOB = "node-00000000000a", "node-00000000000b"


@pytest.fixture(params=["memory", "file", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A migrated database of each kind."""
    with new_database(request.param, tmp_path) as url:
        database = open_held(url, "selector", MIGRATIONS)
        yield database
        database.close()


@pytest.fixture
def store(database: Database) -> SelectorStore:
    return SelectorStore(database, Weights())


def entry(node_id: str = ADA, **changes: Any) -> CatalogEntry:
    fields = {"node_id": node_id, "name": node_id[-1], "address": "10.0.0.1:1", "slots": 2}
    return CatalogEntry(**{**fields, "state": NODE_STATE_ALIVE, "labels": {"room": "ü"}, **changes})


def told(sequence: int, kind: Any, about: CatalogEntry, online_s: float = 0.0) -> NodeEvent:
    return NodeEvent("registry-1", sequence, kind, about, reason="", online_s=online_s, time_s=NOW_S)


def training(name: str, node_id: str = ADA) -> Evidence:
    return Evidence(name, node_id, EVIDENCE_KIND_TRAINING, NOW_S, speed_gflops=7.5, job_id="job-1")


def now_s() -> float:
    return NOW_S


def test_what_was_followed_comes_back_as_it_was_in_the_order_of_meeting(store: SelectorStore) -> None:
    store.follow(
        [told(1, NODE_EVENT_KIND_REGISTERED, entry(BOB)), told(2, NODE_EVENT_KIND_REGISTERED, entry(ADA))],
        now_s,
    )
    dead = entry(BOB, state=NODE_STATE_DEAD, session_start_s=NOW_S - 60.0)
    change = store.follow([told(3, NODE_EVENT_KIND_INTERRUPTED, dead, online_s=60.0)], now_s)
    loaded = store.load()
    assert loaded.cursor == Cursor("registry-1", 3)
    assert loaded.change.entries == [dead, entry(ADA)]
    assert change.applied == 1
    assert loaded.change.records[BOB] == change.records[BOB]


def test_evidence_counts_once_and_its_beliefs_come_back_to_the_last_digit(store: SelectorStore) -> None:
    first = store.report([training("one"), training("two", BOB)], now_s)
    again = store.report([training("two", BOB), training("three")], now_s)
    assert (first.applied, again.applied) == (2, 1)
    loaded = store.load().change
    assert loaded.beliefs == {**first.beliefs, **again.beliefs}
    assert loaded.records[ADA] == again.records[ADA]


def test_a_report_that_fails_counts_nothing(store: SelectorStore) -> None:
    with pytest.raises(ZeroDivisionError):
        store.report([training("one")], lambda: 1 / 0)
    assert store.load().change.entries == []
    assert store.report([training("one")], now_s).applied == 1


def test_another_log_begins_with_unknown_nodes_and_old_beliefs(store: SelectorStore) -> None:
    store.follow([told(1, NODE_EVENT_KIND_REGISTERED, entry())], now_s)
    counted = store.report([training("one")], now_s)
    store.start_again()
    loaded = store.load()
    assert loaded.cursor == Cursor()
    assert [one.state for one in loaded.change.entries] == [NODE_STATE_UNSPECIFIED]
    assert loaded.change.beliefs == counted.beliefs


def test_a_belief_is_explained_by_its_last_update(store: SelectorStore, database: Database) -> None:
    counted = store.report([training("one"), training("two")], now_s)
    found = Explanations(database).of_node(ADA)
    assert (found.belief, found.updates) == (counted.beliefs[ADA], 2)
    assert found.last is not None
    assert found.last.evidence == training("two")


def test_the_migrations_make_the_tables_that_the_code_uses(database: Database) -> None:
    with database.read() as connection:
        assert differences(connection, tables.metadata) == []
