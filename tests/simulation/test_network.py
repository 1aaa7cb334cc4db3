"""The simulation's own ground: time that jumps, messages that keep their order, processes that just stop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from peerloom.testing.memory_channel import MemoryChannel
from peerloom.testing.memory_server import MemoryServer
from peerloom.testing.simulated_processes import MemoryWorld, ProcessRun
from peerloom.testing.told_history import History

ADDRESS = "10.0.0.1:7000"
Request = health_pb2.HealthCheckRequest


class Echo(health_pb2_grpc.HealthServicer):
    """Answers, slowly if asked for."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.stopped = asyncio.Event()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802  # gRPC's name
        self.served.append(request.service)
        await asyncio.sleep(1.0 if request.service == "slow" else 0.0)
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  # gRPC's name
        for number in range(50):
            yield health_pb2.HealthCheckResponse(status=number % 4)
            await asyncio.sleep(0.01)


@pytest.fixture
def world(tmp_path: Path) -> MemoryWorld:
    return MemoryWorld.create(1, tmp_path, History())


def _with_server(world: MemoryWorld, echo: Echo) -> None:
    async def serve(run: ProcessRun) -> None:
        server = MemoryServer(world.network, run)
        health_pb2_grpc.add_HealthServicer_to_server(echo, server)
        server.add_insecure_port(ADDRESS)
        await server.start()
        await echo.stopped.wait()
        await server.stop(None)

    world.add("server", "10.0.0.1", serve).start()


def _as_client(world: MemoryWorld, work: Callable[[Any], Coroutine[Any, Any, None]]) -> float:
    async def client(run: ProcessRun) -> None:
        stub = health_pb2_grpc.HealthStub(MemoryChannel(world.network, run, ADDRESS))
        await asyncio.sleep(0.1)
        await work(stub)
        done.set()

    async def until_done() -> None:
        async with asyncio.timeout(60):
            await done.wait()

    done = asyncio.Event()
    process = world.add("client", "10.0.0.2", client)
    process.restarts = False
    process.start()
    world.loop.run_until_complete(until_done())
    assert world.crashes == []
    ended_s = world.loop.time()
    world.close()
    return ended_s


def test_hours_pass_at_once(world: MemoryWorld) -> None:
    world.loop.run_until_complete(asyncio.sleep(36_000))
    assert world.loop.time() == 36_000
    world.close()


def test_the_messages_of_a_stream_keep_their_order(world: MemoryWorld) -> None:
    async def work(stub: Any) -> None:
        seen = [message.status async for message in stub.Watch(Request())]
        assert seen == [number % 4 for number in range(50)]

    _with_server(world, Echo())
    _as_client(world, work)


def test_a_lost_answer_is_asked_for_again_so_the_call_is_served_twice(world: MemoryWorld) -> None:
    async def work(stub: Any) -> None:
        world.loop.later(0.5, _break_all, world)
        await stub.Check(Request(service="slow"), timeout=10)
        assert echo.served == ["slow", "slow"]

    echo = Echo()
    _with_server(world, echo)
    _as_client(world, work)


def test_what_is_sent_into_a_cut_arrives_after_it(world: MemoryWorld) -> None:
    async def work(stub: Any) -> None:
        await stub.Check(Request(), timeout=1)
        world.network.cut("10.0.0.1", "10.0.0.2")
        world.loop.later(3.0, world.network.heal, "10.0.0.1", "10.0.0.2")
        await stub.Check(Request(), timeout=10)

    _with_server(world, Echo())
    assert 3.0 < _as_client(world, work) < 4.0


def test_a_deadline_ends_a_call_over_a_cut(world: MemoryWorld) -> None:
    async def work(stub: Any) -> None:
        await stub.Check(Request(), timeout=1)
        world.network.cut("10.0.0.2", "10.0.0.1")
        with pytest.raises(aio.AioRpcError) as refused:
            await stub.Check(Request(), timeout=2)
        assert refused.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    _with_server(world, Echo())
    _as_client(world, work)


def test_a_killed_process_does_nothing_more_and_its_callers_hear_of_it(world: MemoryWorld) -> None:
    async def work(stub: Any) -> None:
        world.loop.later(0.5, world.processes["server"].kill, "a test")
        with pytest.raises(aio.AioRpcError) as refused:
            await stub.Check(Request(service="slow"), timeout=10)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    _with_server(world, Echo())
    _as_client(world, work)


def test_a_server_that_stops_ends_its_calls_but_not_their_callers(world: MemoryWorld) -> None:
    """As gRPC's: its calls end with UNAVAILABLE. CancelledError is for who cancels a call itself."""

    async def work(stub: Any) -> None:
        world.loop.later(0.5, echo.stopped.set)
        with pytest.raises(aio.AioRpcError) as refused:
            await stub.Check(Request(service="slow"), timeout=10)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        ended.append("seen")

    echo, ended = Echo(), list[str]()
    _with_server(world, echo)
    _as_client(world, work)
    assert ended == ["seen"]


def _break_all(world: MemoryWorld) -> None:
    for line in list(world.network._connections):
        world.network.break_line(line, "a test")
