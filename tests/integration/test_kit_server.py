"""The server that all services share, over real sockets: errors, health, reflection, TLS."""

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from structlog.testing import capture_logs

from peerloom.errors import (
    ConfigurationError,
    DataLossError,
    InternalError,
    NotFoundError,
    PeerloomError,
    ResourceExhaustedError,
    UnavailableError,
)
from peerloom.kit import send_watch, server_limits
from peerloom.kit import server as server_module
from peerloom.kit.channel import MESSAGE_LIMIT_BYTES, open_channel
from peerloom.kit.dialing import Dialer, RegistryPeer
from peerloom.kit.interceptors import caller
from peerloom.kit.server import Endpoint, Probe, Server
from peerloom.v1 import registry_pb2, registry_pb2_grpc
from peerloom.v1.registry_pb2 import (
    GetNodeRequest,
    GetNodeResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    WatchNodesRequest,
    WatchNodesResponse,
)

NAME = registry_pb2.DESCRIPTOR.services_by_name["RegistryService"].full_name
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
LIMIT_S = 60.0


@dataclass
class Behaviour(registry_pb2_grpc.RegistryServiceServicer):
    """Does what `answer` does, once `gate` is open; streams `streamed`, and fails the same way.

    `ended` once a stream has, in whatever way.
    """

    answer: Callable[[], object] = lambda: None
    streamed: Iterable[WatchNodesResponse] = tuple(WatchNodesResponse(sequence=number) for number in (1, 2))
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def GetNode(self, request: GetNodeRequest, context: Any) -> GetNodeResponse:  # noqa: N802  # the schema's
        self.entered.set()
        await self.gate.wait()
        self.answer()
        return GetNodeResponse(node=registry_pb2.Node(node_id=request.node, state_reason=caller.get().key))

    async def Heartbeat(  # noqa: N802  # the schema's
        self, request_iterator: AsyncIterator[HeartbeatRequest], context: Any
    ) -> AsyncIterator[HeartbeatResponse]:
        async for _ in request_iterator:
            yield HeartbeatResponse()

    async def WatchNodes(  # noqa: N802  # the schema's
        self, request: WatchNodesRequest, context: Any
    ) -> AsyncIterator[WatchNodesResponse]:
        try:
            for message in self.streamed:
                yield message
            self.answer()
        finally:
            self.ended.set()


def raise_it(error: Exception) -> Callable[[], None]:
    def answer() -> None:
        raise error

    return answer


@asynccontextmanager
async def serving(
    answer: Callable[[], object] = lambda: None, *, probes: dict[str, Probe] | None = None, **endpoint: Any
) -> AsyncIterator[tuple[Server, str, Behaviour]]:
    """A started server, its address, and the behaviour behind it, whose gate is open."""
    behaviour = Behaviour(answer)
    behaviour.gate.set()
    server = Server(Endpoint(**{"listen": "127.0.0.1:0", **endpoint}), [NAME])
    server.add_servicer(registry_pb2_grpc.add_RegistryServiceServicer_to_server, behaviour)
    await server.start(probes or {})
    try:
        async with asyncio.timeout(LIMIT_S):
            yield server, server.address, behaviour
    finally:
        await server.close()


def peer_at(address: str) -> RegistryPeer:
    return Dialer().registry(address)


async def get_node(address: str) -> GetNodeResponse:
    async with peer_at(address) as peer:
        response: GetNodeResponse = await peer.call(peer.stub.GetNode, GetNodeRequest(node="a"))
        return response


async def test_bytes_that_are_no_message_are_the_callers_fault_and_no_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Sent raw; one by one, and in a stream of requests."""
    async with serving() as (_, address, _), open_channel(address, retries=False) as channel:
        one = channel.unary_unary(f"/{NAME}/GetNode", request_serializer=bytes)
        many = channel.stream_stream(f"/{NAME}/Heartbeat", request_serializer=bytes)
        for wrong in (b"\xff\xff\xff", b"\x0a\x02\xff\xfe", b"\x0a\x7f"):
            with pytest.raises(aio.AioRpcError) as refused:
                await one(wrong)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "request is 'undecodable'" in (refused.value.details() or "")
        call = many(iter([b"\x0a\x02\xff\xfe"]))
        with pytest.raises(aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (await get_node(address)).node.node_id == "a", "it serves on"
    told = capfd.readouterr()
    assert "Traceback" not in told.out + told.err


async def test_a_call_without_retries_fails_at_its_first_attempt() -> None:
    """With them it is made four times: what is answered UNAVAILABLE may not have arrived."""
    for retries, attempts in ((False, 1), (True, 4)):
        made = list[None]()

        def fail(made: list[None] = made) -> None:
            made.append(None)
            raise UnavailableError("away for the moment")

        async with serving(fail) as (_, address, _), open_channel(address, retries=retries) as channel:
            stub = registry_pb2_grpc.RegistryServiceStub(channel)
            with pytest.raises(aio.AioRpcError):
                await stub.GetNode(GetNodeRequest(node="node-1"), timeout=LIMIT_S)
        assert len(made) == attempts


async def test_who_tries_anew_without_retries_is_not_held_up_by_the_attempts_before() -> None:
    """gRPC would keep a failed connection for the next channel, and try again when its own wait is over."""

    async def beats() -> AsyncIterator[HeartbeatRequest]:
        yield HeartbeatRequest()
        await asyncio.Event().wait()

    async def answered(address: str) -> bool:
        async with Dialer(open_=partial(open_channel, retries=False)).registry(address) as peer:
            answers = peer.converse(peer.stub.Heartbeat, beats())
            async with aclosing(answers):
                with suppress(UnavailableError):
                    await anext(answers)
                    return True
        return False

    async with serving() as (_, address, _):
        assert await answered(address)
    for _ in range(3):
        assert [await answered(address) for _ in range(10)] == [False] * 10, "nobody listens there any more"
        async with serving(listen=address):
            assert await answered(address)


async def test_connections_beyond_the_limit_are_closed_and_those_there_live_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_limits, "connection_limit", lambda: 1)
    async with serving() as (_, address, _), peer_at(address) as peer:
        await peer.call(peer.stub.GetNode, GetNodeRequest(node="a"))
        reader, writer = await asyncio.open_connection(*address.split(":"))
        assert await reader.read() == b"", "the server says nothing and closes"
        writer.close()
        await peer.call(peer.stub.GetNode, GetNodeRequest(node="a"))


async def test_thousands_of_calls_at_once_are_all_answered() -> None:
    """gRPC would end all but the first few thousand that wait, without a word of why."""
    async with serving() as (_, address, _), AsyncExitStack() as opened:
        channels = [open_channel(address, retries=False) for _ in range(5)]
        stubs = [
            registry_pb2_grpc.RegistryServiceStub(await opened.enter_async_context(one)) for one in channels
        ]
        calls = [
            stub.GetNode(GetNodeRequest(node="a"), timeout=LIMIT_S) for stub in stubs for _ in range(900)
        ]
        answers = await asyncio.gather(*calls)
    assert [answer.node.node_id for answer in answers] == ["a"] * 4_500


@asynccontextmanager
async def reading_endlessly() -> AsyncIterator[tuple[Behaviour, AsyncGenerator[WatchNodesResponse, None]]]:
    """What streams without end, and the stream, of which the first answer was read."""
    async with serving() as (_, address, behaviour), peer_at(address) as peer:
        behaviour.streamed = repeat(WatchNodesResponse(reason="x" * 100_000))
        async with aclosing(peer.stream(peer.stub.WatchNodes, WatchNodesRequest())) as stream:
            await anext(stream)
            yield behaviour, stream


async def test_a_reader_that_takes_nothing_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_watch, "SEND_LIMIT_S", 0.05)
    async with reading_endlessly() as (behaviour, _):
        await behaviour.ended.wait()


async def test_a_reader_that_goes_in_the_middle_of_an_answer_is_no_crash() -> None:
    with capture_logs() as logs:
        async with reading_endlessly() as (behaviour, stream):
            await stream.aclose()
            await behaviour.ended.wait()
    assert [each for each in logs if each["event"] == "call_crashed"] == []


async def test_an_error_arrives_as_the_class_that_was_raised() -> None:
    raised = NotFoundError.of_name("node", "alhpa", ["alpha"])
    async with serving(raise_it(raised)) as (_, address, _):
        with pytest.raises(NotFoundError) as arrived:
            await get_node(address)
    assert arrived.value.message == raised.message
    assert (arrived.value.reason, arrived.value.metadata) == (raised.reason, raised.metadata)


async def test_an_error_in_a_stream_comes_after_what_was_sent_before_it() -> None:
    async with (
        serving(raise_it(DataLossError("the log ends here"))) as (_, address, _),
        peer_at(address) as peer,
    ):
        stream = peer.stream(peer.stub.WatchNodes, WatchNodesRequest())
        assert [(await anext(stream)).sequence, (await anext(stream)).sequence] == [1, 2]
        with pytest.raises(DataLossError, match="the log ends here"):
            await anext(stream)


@pytest.mark.parametrize("letter", ["x", "é", "真", "\n", "𝕏"])
async def test_a_long_message_in_any_script_still_arrives(letter: str) -> None:
    error = NotFoundError(letter * 5000, metadata={letter: letter * 500})
    async with serving(raise_it(error)) as (_, address, _):
        with pytest.raises(NotFoundError) as arrived:
            await get_node(address)
    assert len(arrived.value.message) >= 200
    assert letter in arrived.value.metadata


async def test_our_own_bug_is_logged_and_does_not_leak() -> None:
    with capture_logs() as logs:
        async with serving(raise_it(ZeroDivisionError("secret 42"))) as (_, address, _):
            with pytest.raises(InternalError) as arrived:
                await get_node(address)
    assert "GetNode" in arrived.value.message
    assert "secret" not in arrived.value.message
    crash = next(entry for entry in logs if entry["event"] == "call_crashed")
    assert "secret 42" in str(crash["exc_info"])


async def test_without_certificates_a_caller_is_known_by_its_host_alone() -> None:
    async with serving() as (_, address, _):
        assert (await get_node(address)).node.state_reason == "anonymous ipv4:127.0.0.1"


async def test_an_oversized_request_is_refused_by_the_server_and_by_our_own_channel() -> None:
    large = GetNodeRequest(node="x" * (MESSAGE_LIMIT_BYTES + 1))
    async with serving() as (_, address, _):
        unlimited = [("grpc.max_send_message_length", -1)]
        async with aio.insecure_channel(address, options=unlimited) as channel:
            with pytest.raises(aio.AioRpcError) as refused:
                await registry_pb2_grpc.RegistryServiceStub(channel).GetNode(large)
        async with peer_at(address) as peer:
            with pytest.raises(ResourceExhaustedError, match="registry"):
                await peer.call(peer.stub.GetNode, large)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_health_follows_the_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing probe makes every service of the server NOT_SERVING; its recovery brings them back."""
    monkeypatch.setattr(server_module, "PROBE_INTERVAL_S", 0.01)
    broken = asyncio.Event()

    async def probe() -> None:
        if broken.is_set():
            raise UnavailableError("the database doesn't answer")

    async with serving(probes={"database": probe}) as (server, address, _), open_channel(address) as channel:
        running = asyncio.create_task(server.serve_until_stopped())
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=NAME))
        assert (await watch.read()).status == SERVING
        broken.set()
        assert (await watch.read()).status == NOT_SERVING
        broken.clear()
        assert (await watch.read()).status == SERVING
        watch.cancel()
        server.stop()
        await running


async def test_a_server_that_starts_broken_says_so() -> None:
    async def probe() -> None:
        raise UnavailableError("no upstream")

    async with serving(probes={"upstream": probe}) as (_, address, _), open_channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == NOT_SERVING


async def test_reflection_lists_the_services() -> None:
    async with serving() as (_, address, _), open_channel(address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        names = {found.name for found in (await call.read()).list_services_response.service}
        call.cancel()
    assert names == {NAME, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


async def test_a_client_that_knows_no_schema_can_call() -> None:
    """`buf curl` learns the schema by reflection, as grpcurl does."""
    async with serving() as (_, address, _):
        curl = await asyncio.create_subprocess_exec(
            *(str(Path(sys.executable).parent / "buf"), "curl", "--http2-prior-knowledge", "--protocol=grpc"),
            *("--data", '{"node": "alpha"}', f"http://{address}/{NAME}/GetNode"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, told = await curl.communicate()
    assert curl.returncode == 0, told
    assert b"alpha" in out


async def test_who_started_it_may_be_gone_before_it_says_where_it_is() -> None:
    """An agent that is killed leaves its inference server a pipe without a reader; the lifeline ends that."""

    def nobody_reads(*_: object, **__: object) -> None:
        raise BrokenPipeError

    server = Server(Endpoint(listen="127.0.0.1:0"), [NAME], say=nobody_reads)
    behaviour = Behaviour()
    behaviour.gate.set()
    server.add_servicer(registry_pb2_grpc.add_RegistryServiceServicer_to_server, behaviour)
    async with server:
        await server.start({})
        assert (await get_node(server.address)).node.node_id == "a"


async def test_a_graceful_stop_lets_a_running_call_finish() -> None:
    async with serving() as (server, address, behaviour), peer_at(address) as peer:
        behaviour.gate.clear()
        running = asyncio.create_task(server.serve_until_stopped())
        async with open_channel(address) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == SERVING
            call = asyncio.create_task(peer.call(peer.stub.GetNode, GetNodeRequest(node="late")))
            await behaviour.entered.wait()
            server.stop()
            assert (await watch.read()).status == NOT_SERVING
        behaviour.gate.set()
        assert (await call).node.node_id == "late"
        await running
    with pytest.raises(UnavailableError, match="registry at 127"):
        await get_node(address)


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        listen = f"127.0.0.1:{holder.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=listen):
            async with serving(listen=listen):
                pass


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "example.org:0"])
async def test_without_a_door_only_loopback_is_served(listen: str) -> None:
    with pytest.raises(ConfigurationError, match="needs the door"):
        async with serving(listen=listen):
            pass


@pytest.mark.parametrize("listen", ["", "localhost", "127.0.0.1:http", "127.0.0.1:65536", ":7070"])
async def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        async with serving(listen=listen):
            pass


async def test_plain_beyond_loopback_when_the_owner_allows_it() -> None:
    async with serving(listen="0.0.0.0:0", allow_plain=True) as (_, address, _):
        assert (await get_node(address.replace("0.0.0.0", "127.0.0.1"))).node.node_id == "a"


async def test_every_error_class_maps_back_over_a_real_call() -> None:
    """Each class that a service may raise comes out as itself."""
    for cls in PeerloomError.__subclasses__():
        async with serving(raise_it(cls("why", reason="CASE", metadata={"key": "value"}))) as (_, address, _):
            with pytest.raises(cls) as arrived:
                await get_node(address)
        assert (type(arrived.value), arrived.value.reason) == (cls, "CASE")
