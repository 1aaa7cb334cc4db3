"""When an embedded system counts as ready."""

from dataclasses import replace

from peerloom.embedded.health import Seen, not_ready
from peerloom.v1.registry_pb2 import Node, NodeSpec, NodeState, ServiceEndpoint, ServiceKind

ADDRESSES = {"registry": "h:1", "selector": "h:2", "node-1": "h:3"}


def node(
    address: str, state: "NodeState.ValueType" = NodeState.NODE_STATE_ALIVE, draining: bool = False
) -> Node:
    return Node(spec=NodeSpec(name="node-1", address=address), state=state, draining=draining)


READY = Seen(
    unhealthy=(),
    nodes=(node("h:3"),),
    services=(ServiceEndpoint(kind=ServiceKind.SERVICE_KIND_SELECTOR, address="h:2"),),
    selectable={"h:3"},
)


def test_nothing_is_missing_when_all_are_healthy_announced_alive_and_selectable() -> None:
    assert not_ready(ADDRESSES, READY) == []


def test_an_unhealthy_process_is_named() -> None:
    assert not_ready(ADDRESSES, replace(READY, unhealthy=("selector",))) == ["selector is not healthy"]


def test_a_node_of_an_earlier_run_at_another_address_does_not_count() -> None:
    seen = replace(READY, nodes=(node("h:9"),), selectable={"h:9"})
    assert not_ready(ADDRESSES, seen) == ["node-1 is not registered"]


def test_a_node_that_is_not_alive_does_not_count() -> None:
    seen = replace(READY, nodes=(node("h:3", NodeState.NODE_STATE_SUSPECT),))
    assert not_ready(ADDRESSES, seen) == ["node-1 is not registered"]


def test_a_node_that_the_selector_has_not_heard_of_does_not_count() -> None:
    assert not_ready(ADDRESSES, replace(READY, selectable=set())) == ["node-1 is not known to the selector"]


def test_a_draining_node_need_not_be_selectable() -> None:
    seen = replace(READY, nodes=(node("h:3", draining=True),), selectable=set())
    assert not_ready(ADDRESSES, seen) == []


def test_an_announcement_of_an_earlier_run_does_not_count() -> None:
    old = ServiceEndpoint(kind=ServiceKind.SERVICE_KIND_SELECTOR, address="h:8")
    assert not_ready(ADDRESSES, replace(READY, services=(old,))) == ["selector is not announced"]


def test_without_a_selector_nodes_need_only_be_registered() -> None:
    addresses = {"registry": "h:1", "node-1": "h:3"}
    assert not_ready(addresses, replace(READY, services=(), selectable=None)) == []
