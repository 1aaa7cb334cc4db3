"""The registry's calls without a port: what each takes, answers and refuses."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from memory_registry import KEY, TIMING, MemoryRegistry

from peerloom.errors import InvalidArgumentError, NotFoundError
from peerloom.kit.dialing import Dialer
from peerloom.services.registry.servicer import RegistryServicer
from peerloom.v1 import registry_pb2 as pb
from peerloom.v1.common_pb2 import MachineSpeed, SlotCount

LIMIT_S = 60.0


@pytest.fixture
def servicer(registry: MemoryRegistry) -> RegistryServicer:
    return RegistryServicer(registry.core, Dialer(), random.Random(1))


def registration(name: str = "ada", **spec: Any) -> pb.RegisterRequest:
    filled = {"address": "10.0.0.1:7500", "slots": 2, **spec}
    request_id = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
    return pb.RegisterRequest(spec=pb.NodeSpec(name=name, **filled), node_key=KEY, request_id=request_id)


def heartbeat(lease_id: str, incarnation: int = 1, **fields: Any) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(
        lease_id=lease_id, incarnation=incarnation, slots=SlotCount(total=2, free=1), **fields
    )


async def answers_to(servicer: RegistryServicer, beats: Sequence[pb.HeartbeatRequest]) -> list[Any]:
    """The answers to a stream of these heartbeats, which then ends."""

    async def stream() -> AsyncIterator[pb.HeartbeatRequest]:
        for beat in beats:
            yield beat

    return [answer async for answer in servicer.Heartbeat(stream(), None)]


async def watched(servicer: RegistryServicer, after: int = 0) -> list[pb.WatchNodesResponse]:
    request = pb.WatchNodesRequest(after_sequence=after, stop_at_present=True)
    return [event async for event in servicer.WatchNodes(request, None)]


async def test_a_registration_is_answered_with_lease_interval_and_incarnation(
    servicer: RegistryServicer,
) -> None:
    answer = await servicer.Register(registration(), None)
    assert (answer.heartbeat_interval_s, answer.incarnation) == (TIMING.heartbeat_interval_s, 1)
    found = (await servicer.GetNode(pb.GetNodeRequest(node="ada"), None)).node
    assert (found.node_id, found.state, found.slots.free) == (answer.node_id, pb.NODE_STATE_ALIVE, 2)
    with pytest.raises(InvalidArgumentError, match=r"spec\.address"):
        await servicer.Register(registration("bob", address="nowhere"), None)


async def test_heartbeats_refute_tell_of_slots_speed_and_lending(
    servicer: RegistryServicer, registry: MemoryRegistry
) -> None:
    lease_id = (await servicer.Register(registration(), None)).lease_id
    await registry.pass_time(TIMING.suspect_after_s)
    speed = MachineSpeed(training_gflops=7.5)
    beats = [
        heartbeat(lease_id),
        heartbeat(lease_id, 2),
        heartbeat(lease_id, 2, withheld="Used by its owner.", speed=speed),
        heartbeat(lease_id, 2),
    ]
    answers = await answers_to(servicer, beats)
    states = [answer.state for answer in answers]
    assert states == [pb.NODE_STATE_SUSPECT, *[pb.NODE_STATE_ALIVE] * 3], "only a higher incarnation refutes"
    events = await watched(servicer)
    assert [event.kind for event in events] == [
        pb.NODE_EVENT_KIND_REGISTERED,
        pb.NODE_EVENT_KIND_SUSPECTED,
        pb.NODE_EVENT_KIND_REFUTED,
        pb.NODE_EVENT_KIND_DRAIN_CHANGED,
        pb.NODE_EVENT_KIND_MEASURED,
        pb.NODE_EVENT_KIND_DRAIN_CHANGED,
    ]
    assert [event.node.draining for event in events[3:]] == [True, True, False]
    node = (await servicer.GetNode(pb.GetNodeRequest(node="ada"), None)).node
    assert (node.slots.free, node.spec.speed) == (1, speed)


async def test_the_end_of_a_heartbeat_stream_suspects_its_node_but_not_when_the_registry_ends_it(
    servicer: RegistryServicer, registry: MemoryRegistry
) -> None:
    lease_id = (await servicer.Register(registration(), None)).lease_id
    await answers_to(servicer, [heartbeat(lease_id)])
    await registry.core.work.wait_all()
    assert registry.state_of("ada") == pb.NODE_STATE_SUSPECT
    other = (await servicer.Register(registration("bob"), None)).lease_id
    silent = asyncio.Event()

    async def stream() -> AsyncIterator[pb.HeartbeatRequest]:
        yield heartbeat(other)
        silent.set()
        await asyncio.Event().wait()

    async def read() -> int:
        return len([answer async for answer in servicer.Heartbeat(stream(), None)])

    async with asyncio.timeout(LIMIT_S):
        reading = asyncio.create_task(read())
        await silent.wait()
        servicer.close()
        assert await reading == 1, "the stream ends in order"
    await registry.core.work.wait_all()
    assert registry.state_of("bob") == pb.NODE_STATE_ALIVE


async def test_a_stop_ends_watchers_that_wait(servicer: RegistryServicer) -> None:
    await servicer.Register(registration(), None)
    first = asyncio.Event()
    seen: list[int] = []

    async def watch() -> None:
        async for event in servicer.WatchNodes(pb.WatchNodesRequest(), None):
            seen.append(event.sequence)
            first.set()

    async with asyncio.timeout(LIMIT_S):
        watching = asyncio.create_task(watch())
        await first.wait()
        servicer.close()
        await watching
    assert seen == [1]


async def test_events_name_the_registry_and_go_on_behind_a_sequence(
    servicer: RegistryServicer, registry: MemoryRegistry
) -> None:
    lease_id = (await servicer.Register(registration(), None)).lease_id
    await registry.pass_time(2.0)
    await servicer.Deregister(pb.DeregisterRequest(lease_id=lease_id, reason="holidays"), None)
    (left,) = await watched(servicer, after=1)
    assert (left.sequence, left.registry_id) == (2, registry.core.registry_id)
    assert (left.kind, left.reason) == (pb.NODE_EVENT_KIND_LEFT, "holidays")
    assert left.online_s == pytest.approx(2.0)
    assert left.node.state == pb.NODE_STATE_LEFT


async def test_nodes_are_listed_by_name_in_pages_by_state_and_labels(
    servicer: RegistryServicer, registry: MemoryRegistry
) -> None:
    leases = {}
    for name, room in (("carl", "a"), ("ada", "b"), ("bob", "a"), ("dora", "a")):
        leases[name] = (await servicer.Register(registration(name, labels={"room": room}), None)).lease_id
    await servicer.Deregister(pb.DeregisterRequest(lease_id=leases["dora"]), None)
    request = pb.ListNodesRequest(page_size=2, states=[pb.NODE_STATE_ALIVE])
    first = await servicer.ListNodes(request, None)
    request.page_token = first.next_page_token
    rest = await servicer.ListNodes(request, None)
    assert [node.spec.name for node in (*first.nodes, *rest.nodes)] == ["ada", "bob", "carl"]
    assert rest.next_page_token == ""
    labelled = await servicer.ListNodes(pb.ListNodesRequest(labels={"room": "a"}), None)
    assert [node.spec.name for node in labelled.nodes] == ["bob", "carl", "dora"]
    with pytest.raises(InvalidArgumentError, match="ALIVE, SUSPECT, DEAD or LEFT"):
        await servicer.ListNodes(pb.ListNodesRequest(states=[pb.NODE_STATE_UNSPECIFIED]), None)
    with pytest.raises(InvalidArgumentError, match="page_token"):
        await servicer.ListNodes(pb.ListNodesRequest(page_token="x"), None)


async def test_sessions_and_interruptions_are_listed_newest_first_without_their_leases(
    servicer: RegistryServicer, registry: MemoryRegistry
) -> None:
    lease_id = (await servicer.Register(registration(), None)).lease_id
    await registry.pass_time(TIMING.dead_after_s + 1.0)
    await registry.register("ada")
    await registry.pass_time(1.0)
    sessions = (await servicer.ListSessions(pb.ListSessionsRequest(node="ada"), None)).sessions
    assert [(one.interrupted, one.HasField("end_time")) for one in sessions] == [(False, False), (True, True)]
    assert sessions[0].online_s == pytest.approx(1.0)
    assert all(lease_id not in one.session_id for one in sessions)
    request = pb.ListInterruptionsRequest()
    (interruption,) = (await servicer.ListInterruptions(request, None)).interruptions
    assert interruption == sessions[1]


async def test_a_drained_node_stays_drained_until_it_is_undone(servicer: RegistryServicer) -> None:
    await servicer.Register(registration(), None)
    assert (await servicer.Drain(pb.DrainRequest(node="ada"), None)).node.draining
    assert not (await servicer.Drain(pb.DrainRequest(node="ada", undo=True), None)).node.draining
    with pytest.raises(NotFoundError, match="Did you mean ada"):
        await servicer.Drain(pb.DrainRequest(node="adaa"), None)


async def test_services_are_listed_while_their_announcements_stand(
    servicer: RegistryServicer, registry: MemoryRegistry
) -> None:
    kind = pb.ServiceKind.SERVICE_KIND_TRAINER
    answer = await servicer.AnnounceService(
        pb.AnnounceServiceRequest(kind=kind, address="10.0.0.9:7402"), None
    )
    found = (await servicer.ListServices(pb.ListServicesRequest(), None)).services
    assert [(one.kind, one.address) for one in found] == [(kind, "10.0.0.9:7402")]
    registry.clock.advance(answer.lease_s)
    assert (await servicer.ListServices(pb.ListServicesRequest(), None)).services == []


async def test_holders_are_told_with_their_addresses_while_their_leases_last(
    servicer: RegistryServicer,
) -> None:
    lease_id = (await servicer.Register(registration(), None)).lease_id
    digest = bytes(range(32))
    told = pb.AdvertiseArtifactsRequest(lease_id=lease_id, version=3, added=[digest])
    assert (await servicer.AdvertiseArtifacts(told, None)).count == 1
    (answer,) = await answers_to(servicer, [heartbeat(lease_id)])
    assert answer.artifact_version == 3
    request = pb.ListHoldersRequest(digest=digest.hex())
    found = await servicer.ListHolders(request, None)
    assert [(one.name, one.address) for one in found.holders] == [("ada", "10.0.0.1:7500")]
    await servicer.Deregister(pb.DeregisterRequest(lease_id=lease_id), None)
    assert (await servicer.ListHolders(request, None)).count == 0
    with pytest.raises(NotFoundError, match="register again"):
        await servicer.AdvertiseArtifacts(told, None)
