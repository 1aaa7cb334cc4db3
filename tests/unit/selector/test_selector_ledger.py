"""Changes: each fact counts once, all or none, and memory says what the database says."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import given, settings
from hypothesis import strategies as st
from selector_rooms import Rooms, SqlInPlace, entry, event, fact, node_id

from peerloom.errors import UnavailableError
from peerloom.services.selector import tables
from peerloom.services.selector.evidence import Evidence
from peerloom.services.selector.ledger import Ledger
from peerloom.services.selector.roster import Cursor, EventKind, NodeState
from peerloom.services.selector.rules import EvidenceKind, Standing, update


def rows_in(rooms: Rooms, table: sa.Table) -> int:
    with rooms.engine.connect() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def test_the_migrations_lead_to_the_tables() -> None:
    with Rooms().engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []


async def test_evidence_counts_once_however_often_it_is_reported() -> None:
    rooms = Rooms()
    assert await rooms.ledger.report([fact("a"), fact("b"), fact("a")]) == 2
    assert await rooms.ledger.report([fact("b"), fact("c")]) == 1
    again = rooms.again()
    await again.ledger.load()
    assert await again.ledger.report([fact("a"), fact("b"), fact("c")]) == 0
    explained = rooms.explanations.of_node(node_id(1))
    assert explained.updates == 3
    assert explained.last is not None
    assert (explained.last.terms.trainings, explained.last.evidence.evidence_id) == (3, "c")
    assert rows_in(rooms, tables.history) == rows_in(rooms, tables.evidence) == 3


REPORTS = st.lists(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 3), st.sampled_from(EvidenceKind), st.floats(0, 1e6)),
        min_size=1,
        max_size=6,
    ),
    max_size=8,
)


@given(reports=REPORTS)
@settings(max_examples=40, deadline=None)
def test_beliefs_are_what_the_rules_make_of_the_distinct_facts(reports: list[list[Any]]) -> None:
    """Repeats are drawn on purpose: ids from a small set. The twin folds the rules over first sightings."""
    rooms, twin, seen = Rooms(), dict[str, Standing](), set[str]()
    for report in reports:
        facts = [
            fact(f"id-{i}", number, kind, delay_s=seconds, online_s=seconds)
            for i, number, kind, seconds in report
        ]
        asyncio.run(_report(rooms, facts))
        for one in facts:
            if one.evidence_id not in seen:
                seen.add(one.evidence_id)
                before = twin.get(one.node_id, Standing())
                after, _ = update(
                    before,
                    EvidenceKind(one.kind),
                    rooms.weights,
                    delay_s=one.delay_s,
                    online_s=one.online_s,
                )
                twin[one.node_id] = after
    expected = {node: standing.belief for node, standing in twin.items()}
    assert rooms.beliefs() == expected
    assert {e.node_id: e.belief for e in rooms.explanations.highest_first(100, None)} == expected
    rooms.engine.dispose()


async def _report(rooms: Rooms, facts: list[Evidence]) -> None:
    await rooms.ledger.report(facts)


@pytest.mark.parametrize("table", ["evidence", "history", "beliefs"])
async def test_when_sql_fails_nothing_has_changed(table: str) -> None:
    """Each of the transaction's writes is made to fail in turn; memory and database stay as they were."""
    rooms = Rooms()
    await rooms.ledger.report([fact("a")])
    before = rooms.beliefs()
    failing = True

    def refuse(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if failing and statement.startswith((f"INSERT INTO {table}", f"UPDATE {table}")):
            raise sa.exc.OperationalError(statement, {}, Exception("disk I/O error"))

    sa.event.listen(rooms.engine, "before_cursor_execute", refuse)
    with pytest.raises(UnavailableError, match="disk I/O error"):
        await rooms.ledger.report([fact("b"), fact("c", number=2)])
    assert rooms.beliefs() == before
    failing = False
    assert rooms.again().store.load().change.beliefs == before
    assert await rooms.ledger.report([fact("b"), fact("c", number=2)]) == 2


async def test_a_caller_that_gives_up_leaves_memory_and_database_equal() -> None:
    """Its deadline passes when the facts are committed and memory doesn't know of them yet."""
    rooms = Rooms()
    committed, go_on = asyncio.Event(), asyncio.Event()

    class SlowAnswer(SqlInPlace):
        async def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
            found = await super().run(function, *args, **kwargs)
            committed.set()
            await go_on.wait()
            return found

    ledger = Ledger(SlowAnswer(rooms.engine, "selector"), rooms.store, rooms.columns, rooms.clock)
    calling = asyncio.create_task(ledger.report([fact("a")]))
    await committed.wait()
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    go_on.set()
    await ledger.close()
    assert rooms.beliefs() == rooms.store.load().change.beliefs != {}


async def test_evidence_about_a_node_not_met_is_kept_until_the_registry_names_it() -> None:
    rooms = Rooms()
    await rooms.ledger.report([fact("a", number=7)])
    assert rooms.explanations.of_node(node_id(7)).name == ""
    await rooms.ledger.follow([event(1, EventKind.REGISTERED, entry(7))])
    explained = rooms.explanations.of_node(node_id(7))
    assert (explained.name, explained.updates) == ("n7", 1)


async def test_the_open_session_counts_as_long_as_it_is_at_the_update() -> None:
    rooms = Rooms()
    start_s = rooms.clock.wall_s()
    await rooms.ledger.follow([event(1, EventKind.REGISTERED, entry(1, session_start_s=start_s))])
    rooms.clock.advance(99)
    again = rooms.again()
    await again.ledger.load()
    await again.ledger.report([fact("a")])
    last = rooms.explanations.of_node(node_id(1)).last
    assert last is not None
    assert last.terms.open_online_s == 99


@pytest.mark.parametrize(
    ("kind", "evidence_kind", "interruptions"),
    [
        (EventKind.LEFT, EvidenceKind.SESSION_ENDED, 0),
        (EventKind.INTERRUPTED, EvidenceKind.INTERRUPTION, 1),
    ],
)
async def test_the_end_of_a_session_is_evidence(
    kind: EventKind, evidence_kind: EvidenceKind, interruptions: int
) -> None:
    rooms = Rooms()
    start_s = rooms.clock.wall_s()
    gone = entry(1, state=NodeState.DEAD)
    events = [
        event(1, EventKind.REGISTERED, entry(1, session_start_s=start_s)),
        event(2, kind, gone, online_s=59.0),
    ]
    rooms.clock.advance(500)  # we hear of it late, which doesn't make the session longer
    await rooms.ledger.follow(events)
    last = rooms.explanations.of_node(node_id(1)).last
    assert last is not None
    assert (last.evidence.evidence_id, last.evidence.kind) == ("registry/registry-1/2", evidence_kind)
    terms = last.terms
    assert (terms.open_online_s, terms.interruptions) == (0, interruptions)
    assert terms.time_score == pytest.approx(4.094345, abs=1e-6)  # ln(59 + 1)
    assert rooms.store.load().cursor == Cursor("registry-1", 2)


async def test_another_registry_makes_nodes_unknown_and_leaves_beliefs() -> None:
    rooms = Rooms()
    await rooms.ledger.follow([event(1, EventKind.REGISTERED, entry(1, session_start_s=1.0))])
    await rooms.ledger.report([fact("a")])
    before = rooms.beliefs()
    await rooms.ledger.start_again()
    again = rooms.again()
    assert await again.ledger.load() == Cursor()
    for found in (rooms, again):
        assert found.columns.state.tolist() == [NodeState.UNKNOWN]
        assert found.beliefs() == before


async def test_a_log_read_again_adds_no_evidence() -> None:
    rooms = Rooms()
    log = [event(1, EventKind.REGISTERED, entry(1)), event(2, EventKind.LEFT, entry(1), online_s=9.0)]
    await rooms.ledger.follow(log)
    await rooms.ledger.start_again()
    await rooms.ledger.follow(log)
    assert rooms.explanations.of_node(node_id(1)).updates == 1


async def test_a_restart_knows_the_roster_before_the_registry_answers() -> None:
    rooms = Rooms()
    labelled = entry(3, labels={"room": "b"}, accelerators=("cuda",), slots=4, draining=True)
    await rooms.ledger.follow(
        [event(n, EventKind.REGISTERED, e) for n, e in enumerate((entry(9), labelled), 1)]
    )
    again = rooms.again()
    await again.ledger.load()
    assert again.columns.names == ["n9", "n3"]
    assert again.store.load().change.entries == [entry(9), labelled]
    assert again.columns.node_id_of("n3") == node_id(3)
    assert again.columns.labels.has(("room", "b")).tolist() == [False, True]
