"""One contract for every store: SQLite in memory, SQLite in a file, and PostgreSQL where one is given."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from databases import differences, new_database, open_held

import peerloom.services.registry as package
from peerloom.errors import FailedPreconditionError
from peerloom.kit.database import Database
from peerloom.services.registry import tables
from peerloom.services.registry.membership.node_records import (
    ClosedSession,
    Moment,
    NodeRecord,
    OpenSession,
    Transition,
)
from peerloom.services.registry.store import Store
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_EVENT_KIND_LEFT,
    NODE_EVENT_KIND_REGISTERED,
    NODE_STATE_ALIVE,
    NODE_STATE_DEAD,
    NODE_STATE_LEFT,
    NodeSpec,
)

MIGRATIONS = str(Path(package.__file__).parent / "migrations")
NOW = Moment(wall_s=1000.0, monotonic_s=50.0)


@pytest.fixture(params=["memory", "file", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A migrated database of each kind."""
    with new_database(request.param, tmp_path) as url:
        database = open_held(url, "registry", MIGRATIONS)
        yield database
        database.close()


@pytest.fixture
def store(database: Database) -> Store:
    """A store that was loaded once, as at a start."""
    store = Store(database)
    store.load(NOW)
    return store


def record(name: str = "ada", **changes: Any) -> NodeRecord:
    """A node whose id is made of its name."""
    spec = NodeSpec(name=name, address="h:1", slots=2, labels={"room": "ü"})
    fields: dict[str, Any] = {
        "node_id": f"node-{name}",
        "name": name,
        "key_sha256": "0" * 64,
        "spec": spec,
        "state": NODE_STATE_ALIVE,
        "state_reason": "Registered.",
        "incarnation": 1,
        "draining": False,
        "registered_s": 900.25,
        "last_seen_s": 950.5,
    }
    return NodeRecord(**{**fields, **changes})


def opening(name: str = "ada", number: int = 1, *, is_first: bool = True) -> Transition:
    """A node registers."""
    node = record(name, incarnation=number)
    session = OpenSession(f"lease-{name}-{number}", node.node_id, f"request-{number}", number, 900.0, 0.0)
    return Transition(
        node, NODE_EVENT_KIND_REGISTERED, "", 900.0, b"\x00snapshot", is_first=is_first, opened=session
    )


def closing(name: str = "ada", number: int = 1, *, interrupted: bool = True) -> Transition:
    """A node goes, with or without notice."""
    node = record(name, incarnation=number, state=NODE_STATE_DEAD if interrupted else NODE_STATE_LEFT)
    kind = NODE_EVENT_KIND_INTERRUPTED if interrupted else NODE_EVENT_KIND_LEFT
    closed = ClosedSession(f"lease-{name}-{number}", 960.0, 60.0, interrupted, "why")
    return Transition(node, kind, "why", 970.0, b"", closed=closed)


def listed(store: Store, node_id: str | None = None, **options: Any) -> list[str]:
    """The ids of the sessions that a list gives."""
    filled = {"interrupted_only": False, "before": None, "limit": 100, **options}
    return [row.session_id for row in store.sessions(node_id, **filled)]


def test_the_registrys_id_is_made_once(store: Store) -> None:
    assert store.load(NOW).registry_id == store.load(NOW).registry_id


def test_a_node_and_its_open_session_come_back_as_they_were(store: Store) -> None:
    store.append([opening()], 0)
    loaded = store.load(Moment(wall_s=1000.0, monotonic_s=50.0))
    assert loaded.records == [record()]
    assert loaded.sessions == [OpenSession("lease-ada-1", "node-ada", "request-1", 1, 900.0, -50.0)]
    assert loaded.newest_sequence == 1


def test_a_wall_clock_that_went_back_makes_no_negative_length(store: Store) -> None:
    store.append([opening()], 0)
    assert store.load(Moment(wall_s=100.0, monotonic_s=50.0)).sessions[0].start_monotonic_s == 50.0


def test_events_are_numbered_without_gaps_and_keep_what_they_tell(store: Store) -> None:
    store.append([opening("ada"), opening("bob")], 0)
    told = store.append([closing("ada")], 2)
    assert store.events_after(2, 10) == told
    assert [event.sequence for event in store.events_after(0, 2)] == [1, 2]
    assert (told[0].kind, told[0].online_s, told[0].reason) == (NODE_EVENT_KIND_INTERRUPTED, 60.0, "why")
    assert store.events_after(0, 1)[0].snapshot == b"\x00snapshot"


def test_many_changes_of_one_node_in_one_commit_end_with_the_last(store: Store) -> None:
    store.append([opening(), closing(), opening(number=2, is_first=False)], 0)
    loaded = store.load(NOW)
    assert [(found.state, found.incarnation) for found in loaded.records] == [(NODE_STATE_ALIVE, 2)]
    assert [session.session_id for session in loaded.sessions] == ["lease-ada-2"]


def test_a_commit_that_fails_leaves_nothing(store: Store) -> None:
    store.append([opening("ada")], 0)
    with pytest.raises(FailedPreconditionError, match="Another process writes"):
        store.append([opening("bob"), opening("ada")], 1)
    assert [found.name for found in store.load(NOW).records] == ["ada"]
    assert store.load(NOW).newest_sequence == 1


def test_a_second_writer_is_found_by_its_sequence(store: Store) -> None:
    store.append([opening("ada")], 0)
    with pytest.raises(FailedPreconditionError):
        store.append([opening("bob")], 0)


def test_sessions_are_listed_newest_first_in_pages_of_one_node_or_all(store: Store) -> None:
    store.append([opening("ada"), opening("bob"), closing("ada"), opening("ada", 2, is_first=False)], 0)
    assert listed(store) == ["lease-ada-2", "lease-bob-1", "lease-ada-1"]
    assert listed(store, "node-ada") == ["lease-ada-2", "lease-ada-1"]
    first = store.sessions(None, interrupted_only=False, before=None, limit=2)
    assert listed(store, before=first[-1].number) == ["lease-ada-1"]


def test_only_sessions_that_ended_without_notice_are_interruptions(store: Store) -> None:
    store.append([opening("ada"), opening("bob"), closing("ada"), closing("bob", interrupted=False)], 0)
    assert listed(store, interrupted_only=True) == ["lease-ada-1"]


def test_a_session_is_found_by_its_lease_and_by_the_attempt_that_opened_it(store: Store) -> None:
    store.append([opening("ada"), closing("ada")], 0)
    found = store.find_session("lease-ada-1")
    assert found is not None
    assert (found.end_s, found.online_s, found.interrupted, found.end_reason) == (960.0, 60.0, True, "why")
    assert store.find_request("node-ada", "request-1") == found
    assert store.find_session("lease-x") is None
    assert store.find_request("node-bob", "request-1") is None


def test_the_migrations_make_the_tables_that_the_code_uses(database: Database) -> None:
    with database.read() as connection:
        assert differences(connection, tables.metadata) == []


@pytest.mark.parametrize("database", ["memory", "file"], indirect=True)
def test_every_index_is_of_use(database: Database) -> None:
    """The lists and the start don't read whole tables; told by SQLite's own plan."""
    queries = {
        "SELECT * FROM sessions WHERE end_s IS NULL": "ix_sessions_end_s",
        "SELECT * FROM sessions WHERE node_id='x' AND number<9 ORDER BY number DESC": "node_id_number",
        "SELECT * FROM sessions WHERE interrupted=1 ORDER BY number DESC": "interrupted_number",
        "SELECT * FROM sessions WHERE node_id='x' AND request_id='y'": "INDEX",
    }
    with database.read() as connection:
        for query, index in queries.items():
            plan = str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all())
            assert index in plan, plan
            assert "TEMP B-TREE" not in plan
