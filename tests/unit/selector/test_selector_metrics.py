"""What the selector tells of itself, from a catalog whose beliefs are known."""

from memory_selector import MemorySelector, entry, event, fact, node_id

from peerloom.kit.dialing import Dialer
from peerloom.kit.metrics import Tally
from peerloom.services.selector.catalog.entries import Cursor
from peerloom.services.selector.catalog.follower import Follower
from peerloom.services.selector.selector_metrics import SelectorMetrics
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_EVENT_KIND_REGISTERED,
    NODE_STATE_DEAD,
)
from peerloom.v1.selector_pb2 import EVIDENCE_KIND_UNFINISHED, SelectNodesRequest


async def told(selector: MemorySelector, chosen_s: Tally | None = None) -> dict[str, dict[object, float]]:
    """Each metric's numbers by its name, but for the histogram."""
    follower = Follower(Dialer().registry("nowhere:1"), selector.writer, Cursor("registry-1", 7))
    found = await SelectorMetrics(
        selector.columns, selector.writer, follower, chosen_s or Tally(())
    ).collect()
    return {one.metric.name: dict(one.values) for one in found if one.metric.name.endswith(NUMBERS)}  # type: ignore[arg-type]  # no histogram is among them


NUMBERS = ("_nodes", "_total", "_belief", "_up", "_event", "_delay_seconds")


async def test_an_empty_catalog_has_no_beliefs_and_a_follower_that_waits_is_not_up() -> None:
    found = await told(MemorySelector())
    assert found["peerloom_selector_belief"] == {}
    assert found["peerloom_selector_follower_up"] == {(): 0}
    assert found["peerloom_selector_followed_event"] == {(): 7}


async def test_nodes_evidence_and_delay_are_what_was_followed_and_reported() -> None:
    """The registry's event is of 1,700,000,000 s, and is applied 2.5 s later."""
    selector = MemorySelector()
    selector.clock.advance(2.5)
    came = [event(n, NODE_EVENT_KIND_REGISTERED, entry(n)) for n in (1, 2, 3)]
    gone = event(4, NODE_EVENT_KIND_INTERRUPTED, entry(3, state=NODE_STATE_DEAD), online_s=60.0)
    await selector.writer.follow([*came, gone])
    await selector.writer.report([fact("a"), fact("b"), fact("c", kind=EVIDENCE_KIND_UNFINISHED)])
    await selector.writer.report([fact("a")])  # known already
    found = await told(selector)
    nodes = found["peerloom_selector_nodes"]
    assert (nodes["alive",], nodes["dead",], nodes["unknown",]) == (2, 1, 0)
    evidence = found["peerloom_selector_evidence_taken_total"]
    assert {kind: count for (kind,), count in evidence.items() if count} == {  # type: ignore[misc]  # one label
        "interruption": 1,
        "training": 2,
        "unfinished": 1,
    }
    assert found["peerloom_selector_follower_delay_seconds"] == {(): 2.5}


async def test_the_spread_of_beliefs_is_that_of_nodes_and_not_of_free_rows() -> None:
    """Beliefs 1 to 10, and a node that was forgotten: a tenth is at or below 1, half at or below 5."""
    selector = MemorySelector()
    await selector.writer.follow([event(n, NODE_EVENT_KIND_REGISTERED, entry(n)) for n in range(1, 12)])
    for number in range(1, 11):
        selector.columns.set_belief(node_id(number), float(number))
    selector.columns.forget(node_id(11))
    spread = (await told(selector))["peerloom_selector_belief"]
    assert spread == {("0",): 1, ("10",): 1, ("50",): 5, ("90",): 9, ("100",): 10}


async def test_each_selection_is_timed_once() -> None:
    selector = MemorySelector()
    await selector.writer.follow([event(1, NODE_EVENT_KIND_REGISTERED, entry(1))])
    servicer = selector.servicer()
    for _ in range(3):
        await servicer.SelectNodes(SelectNodesRequest(request_budget=1), None)
    assert sum(servicer.chosen_s.counts) == 3
