"""Changes: each fact counts once, all or none, and memory says what the database says."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from databases import differences, open_held
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_selector import KINDS, MemorySelector, SqlInPlace, entry, event, fact, node_id

import peerloom.services.selector as package
from peerloom.errors import UnavailableError
from peerloom.services.selector import tables
from peerloom.services.selector.belief.evidence_report import Evidence
from peerloom.services.selector.belief.formula import Reputation, update
from peerloom.services.selector.belief.movement import counted_delay_s
from peerloom.services.selector.catalog.entries import Cursor
from peerloom.services.selector.catalog.writer import CatalogWriter
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_EVENT_KIND_LEFT,
    NODE_EVENT_KIND_REGISTERED,
    NODE_EVENT_KIND_REMOVED,
    NODE_STATE_DEAD,
    NODE_STATE_UNSPECIFIED,
    NodeEventKind,
)
from peerloom.v1.selector_pb2 import (
    EVIDENCE_KIND_INTERRUPTION,
    EVIDENCE_KIND_SESSION_ENDED,
    EvidenceKind,
    GetBeliefRequest,
    SelectNodesRequest,
)


def rows_in(selector: MemorySelector, table: sa.Table) -> int:
    with selector.database.engine.connect() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def test_the_migrations_lead_to_the_tables() -> None:
    migrations = Path(package.__file__).parent / "migrations"
    with open_held("sqlite://", "selector", migrations).engine.connect() as connection:
        assert differences(connection, tables.metadata) == []


async def test_evidence_counts_once_however_often_it_is_reported() -> None:
    selector = MemorySelector()
    assert await selector.writer.report([fact("a"), fact("b"), fact("a")]) == 2
    assert await selector.writer.report([fact("b"), fact("c")]) == 1
    again = selector.again()
    await again.writer.load()
    assert await again.writer.report([fact("a"), fact("b"), fact("c")]) == 0
    explained = selector.explanations.of_node(node_id(1))
    assert explained.updates == 3
    assert explained.last is not None
    assert (explained.last.terms.trainings, explained.last.evidence.evidence_id) == (3, "c")
    assert rows_in(selector, tables.history) == rows_in(selector, tables.evidence) == 3


REPORTS = st.lists(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 3), st.sampled_from(KINDS), st.floats(0, 1e6)),
        min_size=1,
        max_size=6,
    ),
    max_size=8,
)


@given(reports=REPORTS)
@settings(max_examples=40, deadline=None)
def test_beliefs_are_what_the_rules_make_of_the_distinct_facts(reports: list[list[Any]]) -> None:
    """Repeats are drawn on purpose: ids from a small set. The twin folds the rules over first sightings."""
    selector, twin, seen = MemorySelector(), dict[str, Reputation](), set[str]()
    for report in reports:
        facts = [
            fact(f"id-{i}", number, kind, delay_s=seconds, online_s=seconds)
            for i, number, kind, seconds in report
        ]
        asyncio.run(_report(selector, facts))
        for one in facts:
            if one.evidence_id not in seen:
                seen.add(one.evidence_id)
                before = twin.get(one.node_id, Reputation())
                after, _ = update(
                    before,
                    one.kind,
                    selector.weights,
                    delay_s=counted_delay_s(one.delay_s),
                    online_s=one.online_s,
                )
                twin[one.node_id] = after
    expected = {node: reputation.belief for node, reputation in twin.items()}
    assert selector.beliefs() == expected
    assert {e.node_id: e.belief for e in selector.explanations.highest_first(100, None)} == expected
    selector.database.engine.dispose()


async def _report(selector: MemorySelector, facts: list[Evidence]) -> None:
    await selector.writer.report(facts)


@pytest.mark.parametrize("table", ["evidence", "history", "beliefs"])
async def test_when_sql_fails_nothing_has_changed(table: str) -> None:
    """Each of the transaction's writes is made to fail in turn; memory and database stay as they were."""
    selector = MemorySelector()
    await selector.writer.report([fact("a")])
    before = selector.beliefs()
    failing = True

    def refuse(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if failing and statement.startswith((f"INSERT INTO {table}", f"UPDATE {table}")):
            raise sa.exc.OperationalError(statement, {}, Exception("disk I/O error"))

    sa.event.listen(selector.database.engine, "before_cursor_execute", refuse)
    with pytest.raises(UnavailableError, match="disk I/O error"):
        await selector.writer.report([fact("b"), fact("c", number=2)])
    assert selector.beliefs() == before
    failing = False
    assert selector.again().store.load().change.beliefs == before
    assert await selector.writer.report([fact("b"), fact("c", number=2)]) == 2


async def test_a_caller_that_gives_up_leaves_memory_and_database_equal() -> None:
    """Its deadline passes when the facts are committed and memory doesn't know of them yet."""
    selector = MemorySelector()
    committed, go_on = asyncio.Event(), asyncio.Event()

    class SlowAnswer(SqlInPlace):
        async def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
            found = await super().run(function, *args, **kwargs)
            committed.set()
            await go_on.wait()
            return found

    writer = CatalogWriter(SlowAnswer(selector.database), selector.store, selector.columns, selector.clock)
    calling = asyncio.create_task(writer.report([fact("a")]))
    await committed.wait()
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    go_on.set()
    await writer.close()
    assert selector.beliefs() == selector.store.load().change.beliefs != {}


async def test_evidence_about_a_node_not_met_is_kept_until_the_registry_names_it() -> None:
    selector = MemorySelector()
    await selector.writer.report([fact("a", number=7)])
    assert selector.explanations.of_node(node_id(7)).name == ""
    await selector.writer.follow([event(1, NODE_EVENT_KIND_REGISTERED, entry(7))])
    explained = selector.explanations.of_node(node_id(7))
    assert (explained.name, explained.updates) == ("n7", 1)


async def test_of_nodes_that_only_evidence_tells_of_the_newest_thousand_are_kept() -> None:
    """Whoever invents nodes displaces invented ones; those that the registry listed stay."""
    selector = MemorySelector()
    await selector.writer.report([fact("early", number=5000)])
    await selector.writer.follow([event(1, NODE_EVENT_KIND_REGISTERED, entry(5000))])
    for start in (1, 401, 801):
        await selector.writer.report([fact(f"lie-{n}", number=n) for n in range(start, start + 400)])
    assert rows_in(selector, tables.nodes) == rows_in(selector, tables.evidence) == 1001
    assert selector.explanations.of_node(node_id(200)) is None
    kept = {node_id(5000), *(node_id(n) for n in range(201, 1201))}
    assert {one for one in selector.columns.node_ids if one} == kept
    again = selector.again()
    await again.writer.load()
    assert again.beliefs() == dict.fromkeys(kept, 0.5)


async def test_a_node_that_the_registry_forgot_is_forgotten_with_all_it_earned() -> None:
    selector = MemorySelector()
    await selector.writer.follow([event(n, NODE_EVENT_KIND_REGISTERED, entry(n)) for n in (1, 2)])
    await selector.writer.report([fact("a"), fact("b", number=2)])
    await selector.writer.follow([event(3, NODE_EVENT_KIND_REMOVED, entry(1))])
    assert selector.explanations.of_node(node_id(1)) is None
    for table in (tables.nodes, tables.beliefs, tables.tracks, tables.evidence, tables.history):
        assert rows_in(selector, table) == 1
    service = selector.servicer()
    request = SelectNodesRequest(request_budget=5)
    before = await service.SelectNodes(request, None)
    assert ([one.name for one in before.nodes], before.candidates) == (["n2"], 1)
    await selector.writer.follow([event(4, NODE_EVENT_KIND_REGISTERED, entry(3))])
    assert selector.columns.node_ids == [node_id(3), node_id(2)], "the row was free"
    assert selector.beliefs()[node_id(3)] == 0
    found = await service.GetBelief(GetBeliefRequest(node="n3"), None)
    assert list(found.choices) == [], "what became of the former node isn't told of the new one"
    assert (await service.GetBelief(GetBeliefRequest(node="n2"), None)).belief.updates == 1


async def test_a_node_that_comes_and_goes_between_two_looks_leaves_nothing() -> None:
    selector = MemorySelector()
    life = (NODE_EVENT_KIND_REGISTERED, NODE_EVENT_KIND_LEFT, NODE_EVENT_KIND_REMOVED)
    await selector.writer.follow([event(n, kind, entry(1)) for n, kind in enumerate(life, 1)])
    assert rows_in(selector, tables.nodes) == rows_in(selector, tables.evidence) == 0
    assert selector.store.load().cursor == Cursor("registry-1", 3)


async def test_the_open_session_counts_as_long_as_it_is_at_the_update() -> None:
    selector = MemorySelector()
    start_s = selector.clock.wall_s()
    await selector.writer.follow([event(1, NODE_EVENT_KIND_REGISTERED, entry(1, session_start_s=start_s))])
    selector.clock.advance(99)
    again = selector.again()
    await again.writer.load()
    await again.writer.report([fact("a")])
    last = selector.explanations.of_node(node_id(1)).last
    assert last is not None
    assert last.terms.open_online_s == 99


@pytest.mark.parametrize(
    ("kind", "evidence_kind", "interruptions"),
    [
        (NODE_EVENT_KIND_LEFT, EVIDENCE_KIND_SESSION_ENDED, 0),
        (NODE_EVENT_KIND_INTERRUPTED, EVIDENCE_KIND_INTERRUPTION, 1),
    ],
)
async def test_the_end_of_a_session_is_evidence(
    kind: NodeEventKind.ValueType, evidence_kind: EvidenceKind.ValueType, interruptions: int
) -> None:
    selector = MemorySelector()
    start_s = selector.clock.wall_s()
    gone = entry(1, state=NODE_STATE_DEAD)
    events = [
        event(1, NODE_EVENT_KIND_REGISTERED, entry(1, session_start_s=start_s)),
        event(2, kind, gone, online_s=59.0),
    ]
    selector.clock.advance(500)  # we hear of it late, which doesn't make the session longer
    await selector.writer.follow(events)
    last = selector.explanations.of_node(node_id(1)).last
    assert last is not None
    assert (last.evidence.evidence_id, last.evidence.kind) == ("registry/registry-1/2", evidence_kind)
    terms = last.terms
    assert (terms.open_online_s, terms.interruptions) == (0, interruptions)
    assert terms.time_score == pytest.approx(4.094345, abs=1e-6)  # ln(59 + 1)
    assert selector.store.load().cursor == Cursor("registry-1", 2)


async def test_another_registry_makes_nodes_unknown_and_leaves_beliefs() -> None:
    selector = MemorySelector()
    await selector.writer.follow([event(1, NODE_EVENT_KIND_REGISTERED, entry(1, session_start_s=1.0))])
    await selector.writer.report([fact("a")])
    before = selector.beliefs()
    await selector.writer.start_again()
    again = selector.again()
    assert await again.writer.load() == Cursor()
    for found in (selector, again):
        assert found.columns.state.tolist() == [NODE_STATE_UNSPECIFIED]
        assert found.beliefs() == before


async def test_a_log_read_again_adds_no_evidence() -> None:
    selector = MemorySelector()
    log = [
        event(1, NODE_EVENT_KIND_REGISTERED, entry(1)),
        event(2, NODE_EVENT_KIND_LEFT, entry(1), online_s=9.0),
    ]
    await selector.writer.follow(log)
    await selector.writer.start_again()
    await selector.writer.follow(log)
    assert selector.explanations.of_node(node_id(1)).updates == 1


async def test_a_restart_knows_the_catalog_before_the_registry_answers() -> None:
    selector = MemorySelector()
    labelled = entry(3, labels={"room": "b"}, accelerators=("cuda",), slots=4, draining=True)
    await selector.writer.follow(
        [event(n, NODE_EVENT_KIND_REGISTERED, e) for n, e in enumerate((entry(9), labelled), 1)]
    )
    again = selector.again()
    await again.writer.load()
    assert again.columns.names == ["n9", "n3"]
    assert again.store.load().change.entries == [entry(9), labelled]
    assert again.columns.node_id_of("n3") == node_id(3)
    assert again.columns.labels.has(("room", "b")).tolist() == [False, True]
