"""Which relays a node is offered, and what its heartbeats say of where it is reached."""

import random
from typing import Any

from memory_registry import MemoryRegistry

from peerloom.kit.dialing import Dialer
from peerloom.services.registry.discovery.dialling_back import relay_offers
from peerloom.services.registry.membership.node_records import NodeRecord
from peerloom.services.registry.servicer import RegistryServicer
from peerloom.v1 import registry_pb2 as pb
from peerloom.v1.common_pb2 import SlotCount


def relay(name: str, owner: str = "", via: str = "", state: Any = pb.NODE_STATE_ALIVE) -> NodeRecord:
    spec = pb.NodeSpec(name=name, address=f"{name}:1", owner=owner, via=via, relay=True)
    return NodeRecord(f"node-{name}", name, "", spec, state, "", 1, False, 0.0, 0.0)


def names(*relays: NodeRecord, asks: str = "me", owner: str = "ada") -> list[str]:
    return [offer.name for offer in relay_offers(relays, asks, owner, random.Random(1))]


def test_a_node_is_offered_its_owners_relays_first_and_eight_at_most() -> None:
    others = [relay(f"b{number}", "bob") for number in range(9)]
    found = names(*others, relay("mine", "ada"), relay("also", "ada"))
    assert set(found[:2]) == {"mine", "also"}
    assert len(found) == 8
    assert set(found[2:]) < {one.name for one in others}


def test_who_is_suspected_or_behind_a_relay_itself_or_the_one_that_asks_is_not_offered() -> None:
    suspect = relay("suspect", state=pb.NODE_STATE_SUSPECT)
    assert names(suspect, relay("behind", via="open"), relay("me"), relay("open")) == ["open"]


def test_an_offer_says_whom_to_dial_and_who_must_answer() -> None:
    [offer] = relay_offers([relay("open")], "me", "", random.Random(1))
    assert (offer.name, offer.address, offer.node_id) == ("open", "open:1", "node-open")


async def test_relays_are_known_while_their_sessions_are_open(registry: MemoryRegistry) -> None:
    session = await registry.register("open", relay=True)
    await registry.register("other")
    assert {member.record.name for member in registry.core.table.relays} == {"open"}
    await registry.restart()
    assert {member.record.name for member in registry.core.table.relays} == {"open"}
    await registry.core.registrar.deregister(session.session_id, "")
    assert registry.core.table.relays == set()


async def test_a_heartbeat_that_says_another_address_moves_the_node_once(registry: MemoryRegistry) -> None:
    servicer = RegistryServicer(registry.core, Dialer(), random.Random(1))
    session = await registry.register("ada")
    places = [
        ("", ""),
        ("10.0.0.1:7500", ""),
        ("relay:9", "open"),
        ("relay:9", "open"),
        ("10.0.0.1:7500", ""),
    ]

    async def beats() -> Any:
        for address, via in places:
            slots = SlotCount(total=2, free=1)
            yield pb.HeartbeatRequest(
                lease_id=session.session_id, incarnation=1, slots=slots, address=address, via=via
            )

    assert len([answer async for answer in servicer.Heartbeat(beats(), None)]) == 5
    request = pb.WatchNodesRequest(stop_at_present=True)
    told = [event async for event in servicer.WatchNodes(request, None)]
    moved = [event for event in told if event.kind == pb.NODE_EVENT_KIND_MOVED]
    found = [(event.node.spec.address, event.node.spec.via, event.reason) for event in moved]
    assert found == [
        ("relay:9", "open", "It is reached at relay:9 through open."),
        ("10.0.0.1:7500", "", "It is reached at 10.0.0.1:7500."),
    ]
