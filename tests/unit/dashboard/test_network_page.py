"""Nodes as a page shows them: events and lists come in any order, and the newer word counts."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from peerloom import GpuLoad, MachineLoad, Node, NodeEvent
from peerloom.client.types import NodeEventKind
from peerloom.dashboard.availability import Availability, services_page
from peerloom.dashboard.network_page import EVENT_LIMIT, NetworkPage

TIME = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def node(name: str, **values: Any) -> Node:
    made = Node(
        id=f"node-{name}",
        name=name,
        address="127.0.0.1:1",
        state="alive",
        reason="heartbeats arrive",
        slots=3,
        free_slots=1,
        accelerators=(),
        speed=None,
        labels={},
        draining=False,
        incarnation=1,
        registered_time=TIME,
        last_seen_time=TIME,
        online_s=5.0,
    )
    return replace(made, **values)


def event(sequence: int, kind: NodeEventKind, of: Node) -> NodeEvent:
    return NodeEvent(sequence, "registry-1", kind, of, "because", None, TIME)


def shown(page: NetworkPage) -> list[tuple[str, str]]:
    return [(row["name"], row["state"]) for row in page.nodes()]


def test_events_alone_make_the_page() -> None:
    page = NetworkPage()
    page.apply(event(1, "registered", node("berta")))
    page.apply(event(2, "registered", node("anna")))
    page.apply(event(5, "interrupted", node("berta", state="dead")))
    assert shown(page) == [("anna", "alive"), ("berta", "dead")]
    assert page.sequence == 5
    assert [one["sequence"] for one in page.events()] == [5, 2, 1]


def test_a_node_without_a_session_uses_no_slots() -> None:
    page = NetworkPage()
    states = {"anna": "alive", "berta": "dead", "carl": "left", "dora": "suspect"}
    page.refresh([node(name, state=state) for name, state in states.items()], 0)
    rows = [(row["name"], row["used"]) for row in page.nodes()]
    assert rows == [("anna", 2), ("berta", None), ("carl", None), ("dora", 2)]


def test_a_list_that_was_asked_for_before_an_event_doesn_t_take_it_back() -> None:
    page = NetworkPage()
    page.apply(event(1, "registered", node("anna")))
    asked_at = page.sequence
    page.apply(event(2, "interrupted", node("anna", state="dead")))
    page.apply(event(3, "registered", node("berta")))
    page.refresh([node("anna", free_slots=0)], asked_at)
    assert shown(page) == [("anna", "dead"), ("berta", "alive")]
    page.refresh([node("anna", free_slots=0)], page.sequence)
    assert shown(page) == [("anna", "alive")]


def test_a_load_stays_over_an_event_which_never_tells_it_and_goes_with_the_node() -> None:
    load = MachineLoad(0.34, 0.1, 2, 3 * 10**9, 8 * 10**9, (GpuLoad(0.5, 1, 2), GpuLoad(None, 0, 2)))
    page = NetworkPage()
    page.refresh([node("anna", load=load)], 0)
    page.apply(event(1, "drain_changed", node("anna", draining=True)))
    page.apply(event(2, "registered", node("berta")))
    anna, berta = page.nodes()
    assert anna["draining"]
    assert (anna["load"]["cpu"], anna["load"]["memory"], anna["load"]["gpu"]) == (0.34, 0.38, 0.5)
    assert [gpu["use"] for gpu in anna["load"]["gpus"]] == [0.5, None]
    assert berta["load"] is None
    page.apply(event(3, "interrupted", node("anna", state="dead")))
    assert page.nodes()[0]["load"] is None


def test_a_removed_node_doesn_t_come_back_by_an_older_list() -> None:
    page = NetworkPage()
    page.apply(event(1, "registered", node("anna")))
    page.apply(event(2, "removed", node("anna")))
    page.refresh([node("anna")], 1)
    assert shown(page) == []
    assert page.nodes() == []


def test_old_events_are_forgotten() -> None:
    page = NetworkPage()
    for sequence in range(1, EVENT_LIMIT + 3):
        page.apply(event(sequence, "suspected", node("anna", state="suspect")))
    assert [len(page.events()), page.events()[-1]["sequence"]] == [EVENT_LIMIT, 3]


def test_a_service_is_away_since_its_first_silence_until_it_answers() -> None:
    one = Availability().answered(100.0).failed(110.0, "gone").failed(120.0, "still gone")
    assert one == Availability(
        datetime.fromtimestamp(100, UTC), datetime.fromtimestamp(110, UTC), "still gone"
    )
    assert one.answered(130.0) == Availability(datetime.fromtimestamp(130, UTC))


def test_the_availability_of_who_answers_stays_the_same_text() -> None:
    """Else each answer would be news for every browser."""
    first, second = Availability().answered(100.0), Availability().answered(101.0)
    assert services_page({"registry": first}, "a:1") == services_page({"registry": second}, "a:1")
    assert services_page({"registry": Availability()}, "a:1")["services"]["registry"]["told"] is False
