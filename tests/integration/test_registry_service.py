"""The registry as a process: real sockets, a real database, SIGKILL, and what a person sees."""

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from peerloom.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from peerloom.kit.dialing import Dialer, RegistryPeer
from peerloom.v1 import registry_pb2 as pb
from peerloom.v1.common_pb2 import SlotCount
from peerloom.v1.registry_pb2_grpc import RegistryServiceStub

LIMIT_S = 60.0
KEY = "0123456789abcdef"
# Nobody is suspected because the machine that tests is busy; a broken stream is seen at once all the same.
PATIENT = ["--heartbeat-interval-s", "0.2", "--suspect-after-s", "60", "--dead-after-s", "120"]
QUICK = ["--suspect-after-s", "12", "--dead-after-s", "13", "--restart-grace-s", "1"]


@pytest.fixture
def registry(start_service: Any, tmp_path: Path) -> Any:
    """A registry of its own for one test."""
    return start_service("registry", "--state", str(tmp_path), *PATIENT)


@pytest.fixture
def quick_registry(start_service: Any, tmp_path: Path) -> Any:
    """One that finds the dead within 13 s."""
    return start_service("registry", "--state", str(tmp_path), *QUICK)


@asynccontextmanager
async def talk(service: Any) -> AsyncIterator[RegistryPeer]:
    """A channel to the registry, for at most a minute."""
    async with asyncio.timeout(LIMIT_S), Dialer().registry(service.address) as peer:
        yield peer


async def register(peer: RegistryPeer, name: str = "ada", key: str = KEY, **spec: Any) -> Any:
    """A valid registration."""
    filled = {"name": name, "address": "127.0.0.1:7500", "slots": 2, **spec}
    request = pb.RegisterRequest(spec=pb.NodeSpec(**filled), node_key=key, request_id=str(uuid.uuid4()))
    return await peer.call(peer.stub.Register, request)


class Beats:
    """An agent's side of the heartbeat stream."""

    def __init__(self, service: Any) -> None:
        self._channel = aio.insecure_channel(service.address)
        stub: Any = RegistryServiceStub(self._channel)
        self._call = stub.Heartbeat()

    async def beat(self, lease_id: str, incarnation: int = 1, free: int = 2) -> Any:
        """One beat and its answer."""
        slots = SlotCount(total=2, free=free)
        await self._call.write(pb.HeartbeatRequest(lease_id=lease_id, incarnation=incarnation, slots=slots))
        answer = await self._call.read()
        if answer is aio.EOF:
            raise aio.AioRpcError(await self._call.code(), aio.Metadata(), aio.Metadata())
        return answer

    async def code(self) -> grpc.StatusCode:
        """How the stream ended; waits for its end."""
        return await self._call.code()

    async def cut(self) -> None:
        """The stream breaks, as when the agent dies."""
        self._call.cancel()
        await self._channel.close(None)


async def node(peer: RegistryPeer, name: str = "ada") -> Any:
    """A node as the registry knows it."""
    return (await peer.call(peer.stub.GetNode, pb.GetNodeRequest(node=name))).node


async def until(peer: RegistryPeer, kind: Any, after: int = 0) -> Any:
    """The first event of a kind."""
    async for event in peer.stream(peer.stub.WatchNodes, pb.WatchNodesRequest(after_sequence=after)):
        if event.kind == kind:
            return event
    raise AssertionError("the watch ended early")


async def past(peer: RegistryPeer) -> list[Any]:
    """All events that exist now."""
    request = pb.WatchNodesRequest(stop_at_present=True)
    return [event async for event in peer.stream(peer.stub.WatchNodes, request)]


async def test_a_node_registers_beats_and_says_goodbye(registry: Any) -> None:
    async with talk(registry) as peer:
        lease = await register(peer, labels={"room": "attic"})
        assert lease.heartbeat_interval_s == 0.2
        beats = Beats(registry)
        answer = await beats.beat(lease.lease_id, lease.incarnation, free=1)
        assert (answer.state, answer.incarnation, answer.draining) == (pb.NODE_STATE_ALIVE, 1, False)
        await peer.call(peer.stub.Drain, pb.DrainRequest(node="ada"))
        assert (await beats.beat(lease.lease_id)).draining
        seen = await node(peer, lease.node_id)
        assert (seen.spec.labels["room"], seen.slots.free, seen.draining) == ("attic", 2, True)
        await peer.call(peer.stub.Deregister, pb.DeregisterRequest(lease_id=lease.lease_id, reason="bye"))
        await beats.cut()
        assert (await node(peer)).state == pb.NODE_STATE_LEFT
        sessions = (await peer.call(peer.stub.ListSessions, pb.ListSessionsRequest(node="ada"))).sessions
        assert [(s.interrupted, s.end_reason, s.node_name) for s in sessions] == [(False, "bye", "ada")]
        interruptions = await peer.call(peer.stub.ListInterruptions, pb.ListInterruptionsRequest())
        assert list(interruptions.interruptions) == []


async def test_a_broken_stream_is_suspected_at_once_and_ends_as_an_interruption(quick_registry: Any) -> None:
    async with talk(quick_registry) as peer:
        lease = await register(peer)
        beats = Beats(quick_registry)
        await beats.beat(lease.lease_id)
        await beats.cut()
        suspected = await until(peer, pb.NODE_EVENT_KIND_SUSPECTED)
        assert suspected.reason == "Its heartbeat stream broke."
        ended = await until(peer, pb.NODE_EVENT_KIND_INTERRUPTED, suspected.sequence)
        assert ended.node.state == pb.NODE_STATE_DEAD
        listed = await peer.call(peer.stub.ListInterruptions, pb.ListInterruptionsRequest(node=lease.node_id))
        [interruption] = listed.interruptions
        assert lease.lease_id not in interruption.session_id, "a lease is a secret"
        assert listed.interruptions[0].online_s == pytest.approx(ended.online_s)
        late = Beats(quick_registry)
        with pytest.raises(aio.AioRpcError) as refusal:
            await late.beat(lease.lease_id)
        assert refusal.value.code() is grpc.StatusCode.NOT_FOUND
        await late.cut()


async def test_a_suspected_node_refutes_on_a_new_stream(registry: Any) -> None:
    async with talk(registry) as peer:
        lease = await register(peer)
        first = Beats(registry)
        await first.beat(lease.lease_id)
        await first.cut()
        await until(peer, pb.NODE_EVENT_KIND_SUSPECTED)
        again = Beats(registry)
        assert (await again.beat(lease.lease_id, 1)).state == pb.NODE_STATE_SUSPECT
        assert (await again.beat(lease.lease_id, 2)).state == pb.NODE_STATE_ALIVE
        assert (await node(peer)).incarnation == 2
        await again.cut()


async def test_a_killed_registry_comes_back_with_its_nodes_and_leases(
    registry: Any, start_service: Any, tmp_path: Path
) -> None:
    async with talk(registry) as peer:
        lease = await register(peer)
        events = await past(peer)
    registry.kill()
    second = start_service("registry", "--state", str(tmp_path), *QUICK)
    async with talk(second) as peer:
        assert (await node(peer)).state == pb.NODE_STATE_ALIVE
        assert await past(peer) == events
        beats = Beats(second)
        assert (await beats.beat(lease.lease_id)).state == pb.NODE_STATE_ALIVE
        await beats.cut()
        last = await until(peer, pb.NODE_EVENT_KIND_INTERRUPTED)
        assert last.registry_id == events[0].registry_id
        assert last.online_s > 0


async def test_a_graceful_stop_ends_the_streams_and_suspects_nobody(
    registry: Any, start_service: Any, tmp_path: Path
) -> None:
    async with talk(registry) as peer:
        lease = await register(peer)
        beats = Beats(registry)
        await beats.beat(lease.lease_id)
        registry.process.send_signal(signal.SIGTERM)
        assert await beats.code() is grpc.StatusCode.OK
        await beats.cut()
    assert await asyncio.to_thread(registry.process.wait, LIMIT_S) == 0  # a second signal might meet its end
    second = start_service("registry", "--state", str(tmp_path), *PATIENT)
    async with talk(second) as peer:
        assert [event.kind for event in await past(peer)] == [pb.NODE_EVENT_KIND_REGISTERED]


async def test_a_taken_name_is_refused_over_the_wire_with_its_holder(registry: Any) -> None:
    async with talk(registry) as peer:
        lease = await register(peer)
        with pytest.raises(AlreadyExistsError, match="the first keeps the name") as refusal:
            await register(peer, key="another-secret-16")
        assert refusal.value.reason == "NODE_NAME_TAKEN"
        assert refusal.value.metadata["node_id"] == lease.node_id


BAD_REQUESTS: list[tuple[str, Any, type[Exception], str]] = [
    ("GetNode", pb.GetNodeRequest(node="adda"), NotFoundError, "NODE_NOT_FOUND"),
    ("Drain", pb.DrainRequest(node="x"), NotFoundError, "NODE_NOT_FOUND"),
    ("Deregister", pb.DeregisterRequest(lease_id="x"), NotFoundError, "LEASE_ENDED"),
    ("ListSessions", pb.ListSessionsRequest(node="x"), NotFoundError, "NODE_NOT_FOUND"),
    ("ListNodes", pb.ListNodesRequest(page_size=1001), InvalidArgumentError, "FIELD_OUT_OF_LIMITS"),
    ("ListNodes", pb.ListNodesRequest(page_token="!"), InvalidArgumentError, "FIELD_OUT_OF_LIMITS"),
    ("ListSessions", pb.ListSessionsRequest(page_token="ImEi"), InvalidArgumentError, "FIELD_OUT_OF_LIMITS"),
    ("ListNodes", pb.ListNodesRequest(states=[0]), InvalidArgumentError, "FIELD_OUT_OF_LIMITS"),
    (
        "AnnounceService",
        pb.AnnounceServiceRequest(address="h:1"),
        InvalidArgumentError,
        "FIELD_OUT_OF_LIMITS",
    ),
    (
        "AnnounceService",
        pb.AnnounceServiceRequest(kind=1, address="h"),
        InvalidArgumentError,
        "FIELD_OUT_OF_LIMITS",
    ),
]


async def test_bad_requests_get_an_error_with_its_reason(registry: Any) -> None:
    async with talk(registry) as peer:
        for method, request, error, reason in BAD_REQUESTS:
            with pytest.raises(error) as refusal:
                await peer.call(getattr(peer.stub, method), request)
            assert getattr(refusal.value, "reason", "") == reason, method


async def test_an_unknown_node_gets_the_nearest_name(registry: Any) -> None:
    async with talk(registry) as peer:
        await register(peer, "workshop-1")
        with pytest.raises(NotFoundError, match="Did you mean workshop-1"):
            await node(peer, "worksop-1")


async def test_nodes_are_listed_by_name_in_pages_that_pass_the_filter(registry: Any) -> None:
    async with talk(registry) as peer:
        for name in ("e", "b", "d", "a", "c"):
            await register(peer, name, labels={"odd": str(name in "ace")})
        found, token = [], ""
        while True:
            request = pb.ListNodesRequest(labels={"odd": "True"}, page_size=2, page_token=token)
            page = await peer.call(peer.stub.ListNodes, request)
            found.append([one.spec.name for one in page.nodes])
            token = page.next_page_token
            if not token:
                break
        assert found == [["a", "c"], ["e"]]
        dead = await peer.call(peer.stub.ListNodes, pb.ListNodesRequest(states=[pb.NODE_STATE_DEAD]))
        assert list(dead.nodes) == []


async def test_sessions_are_listed_newest_first_in_pages(registry: Any) -> None:
    async with talk(registry) as peer:
        for _ in range(3):
            await register(peer)
        first = await peer.call(peer.stub.ListSessions, pb.ListSessionsRequest(page_size=2))
        rest = await peer.call(
            peer.stub.ListSessions, pb.ListSessionsRequest(page_size=2, page_token=first.next_page_token)
        )
        listed = [*first.sessions, *rest.sessions]
        assert len({s.session_id for s in listed}) == len(listed) == 3
        starts = [s.start_time.ToNanoseconds() for s in listed]
        assert starts == sorted(starts, reverse=True)
        assert not first.sessions[0].HasField("end_time")
        assert first.sessions[1].interrupted


async def test_a_watcher_resumes_where_it_was_and_not_beyond_the_present(registry: Any) -> None:
    async with talk(registry) as peer:
        for name in ("a", "b", "c"):
            await register(peer, name)
        request = pb.WatchNodesRequest(after_sequence=1, stop_at_present=True)
        seen = [event async for event in peer.stream(peer.stub.WatchNodes, request)]
        assert [(event.sequence, event.node.spec.name) for event in seen] == [(2, "b"), (3, "c")]
        with pytest.raises(InvalidArgumentError, match="must be at most 3, the newest sequence"):
            await until(peer, pb.NODE_EVENT_KIND_LEFT, after=4)


async def test_services_of_a_kind_are_listed_the_newest_first(registry: Any) -> None:
    async with talk(registry) as peer:
        for port in (*range(1, 10), 8):
            request = pb.AnnounceServiceRequest(kind=pb.SERVICE_KIND_TRAINER, address=f"h:{port}")
            assert (await peer.call(peer.stub.AnnounceService, request)).lease_s == 15.0
        listed = (await peer.call(peer.stub.ListServices, pb.ListServicesRequest())).services
        assert {one.kind for one in listed} == {pb.SERVICE_KIND_TRAINER}
        assert [one.address for one in listed] == ["h:8", "h:9", *(f"h:{port}" for port in range(7, 1, -1))]


def test_the_key_never_reaches_the_disk_or_the_log(registry: Any, tmp_path: Path) -> None:
    async def scene() -> None:
        async with talk(registry) as peer:
            await register(peer, key="a-very-secret-key-of-ada")
            with suppress(InvalidArgumentError):
                await register(peer, key="short-secret")

    asyncio.run(scene())
    registry.stop()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir()) + registry.log().encode()
    assert b"secret" not in kept
