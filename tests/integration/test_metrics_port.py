"""What a server tells Prometheus of the calls that it answers, over real sockets."""

import asyncio
import builtins
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import grpc
import pytest
from grpc import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest
from scraping import Scrape, scrape
from structlog.testing import capture_logs

from peerloom.errors import ConfigurationError, NotFoundError, UnavailableError
from peerloom.kit import metrics_server
from peerloom.kit.channel import open_channel
from peerloom.kit.dialing import Dialer, RegistryPeer
from peerloom.kit.metrics import Metric, MetricKind, Reading, reading
from peerloom.kit.server import Endpoint, Server
from peerloom.v1 import registry_pb2_grpc
from peerloom.v1.registry_pb2 import (
    GetNodeRequest,
    GetNodeResponse,
    WatchNodesRequest,
    WatchNodesResponse,
)

NAME = "peerloom.v1.RegistryService"
GET, WATCH = f"{NAME}/GetNode", f"{NAME}/WatchNodes"
LIMIT_S = 60.0


class Answering(registry_pb2_grpc.RegistryServiceServicer):
    """Knows node "a" alone; a watch tells one event and then nothing more."""

    async def GetNode(self, request: GetNodeRequest, context: Any) -> GetNodeResponse:  # noqa: N802  # the schema's
        if request.node != "a":
            raise NotFoundError.of_name("node", request.node, ["a"])
        return GetNodeResponse()

    async def WatchNodes(  # noqa: N802  # the schema's
        self, request: WatchNodesRequest, context: Any
    ) -> AsyncIterator[WatchNodesResponse]:
        yield WatchNodesResponse()
        if not request.stop_at_present:
            await asyncio.Event().wait()


@asynccontextmanager
async def serving(metrics: str = "127.0.0.1:0") -> AsyncIterator[tuple[Server, RegistryPeer]]:
    server = Server(Endpoint("127.0.0.1:0", metrics=metrics), [NAME])
    server.add_servicer(registry_pb2_grpc.add_RegistryServiceServicer_to_server, Answering())
    async with server, Dialer().registry(server.address) as peer, asyncio.timeout(LIMIT_S):
        await server.start({})
        yield server, peer


async def seen(server: Server) -> Scrape:
    return await asyncio.to_thread(scrape, server.metrics_address)


async def wait_until(server: Server, holds: Callable[[Scrape], bool]) -> Scrape:
    """A server counts a call a moment after its caller has the answer."""
    while not holds(found := await seen(server)):
        pass
    return found


async def test_calls_with_one_answer_are_counted_by_status_and_timed() -> None:
    async with serving() as (server, peer):
        for node in ("a", "a", "b"):
            try:
                await peer.call(peer.stub.GetNode, GetNodeRequest(node=node))
            except NotFoundError:
                assert node == "b"
        found = await wait_until(
            server, lambda s: s.value("peerloom_grpc_calls_total", method=GET, code="NOT_FOUND") == 1
        )
        assert found.value("peerloom_grpc_calls_total", method=GET, code="OK") == 2
        assert found.value("peerloom_grpc_call_duration_seconds_count", method=GET) == 3
        assert found.value("peerloom_grpc_call_duration_seconds_bucket", method=GET, le="+Inf") == 3
        assert found.value("peerloom_grpc_call_duration_seconds_sum", method=GET) > 0
        assert found.types["peerloom_grpc_calls"] == "counter"
        assert found.types["peerloom_grpc_call_duration_seconds"] == "histogram"


async def test_a_stream_is_open_until_it_ends_or_is_cancelled_and_is_no_latency() -> None:
    async with serving() as (server, peer):
        stream = peer.stream(peer.stub.WatchNodes, WatchNodesRequest())
        await anext(stream)
        assert (await seen(server)).value("peerloom_grpc_streams_open", method=WATCH) == 1
        async for _ in peer.stream(peer.stub.WatchNodes, WatchNodesRequest(stop_at_present=True)):
            pass
        await stream.aclose()
        found = await wait_until(
            server, lambda s: s.value("peerloom_grpc_calls_total", method=WATCH, code="CANCELLED") == 1
        )
        assert found.value("peerloom_grpc_calls_total", method=WATCH, code="OK") == 1
        assert found.value("peerloom_grpc_streams_open", method=WATCH) == 0
        assert found.value("peerloom_grpc_call_duration_seconds_count", method=WATCH) == 0


async def test_a_stranger_cannot_make_labels_by_inventing_methods() -> None:
    """While a server stands by it refuses calls whose methods it doesn't look up."""
    server = Server(Endpoint("127.0.0.1:0", metrics="127.0.0.1:0"), [NAME])
    async with server, open_channel(server.address, retries=False) as channel:
        await server.stand_by("another serves")
        for number in range(5):
            with pytest.raises(aio.AioRpcError) as refused:
                await channel.unary_unary(f"/invented.Service/Method{number}")(b"")
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        found = await seen(server)
        calls = {key: value for key, value in found.samples.items() if key[0] == "peerloom_grpc_calls_total"}
        labels = frozenset({("method", "other"), ("code", "UNAVAILABLE")})
        assert calls == {("peerloom_grpc_calls_total", labels): 5}


async def test_health_checks_are_not_counted() -> None:
    async with serving() as (server, _), Dialer().health(server.address, "service") as health:
        await health.call(health.stub.Check, HealthCheckRequest())
        assert "peerloom_grpc_calls_total" not in (await seen(server)).names


class Broken:
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("peerloom_test", MetricKind.GAUGE, "Fails."),)
    fails = True

    async def collect(self) -> list[Reading]:
        if self.fails:
            raise RuntimeError("a bug")
        return [reading(self.metrics[0], 7)]


async def test_a_source_that_fails_is_told_of_and_takes_no_other_along() -> None:
    async with serving() as (server, _):
        broken, whole = Broken(), Broken()
        whole.fails = False
        server.observe(broken)
        server.observe(whole)
        with capture_logs() as logs:
            assert (await seen(server)).value("peerloom_test") == 7
        assert [one["source"] for one in logs if one["event"] == "metrics_not_read"] == ["Broken"]


async def test_who_says_nothing_takes_one_of_few_places_and_those_come_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.05)
    async with serving() as (server, _):
        host, _, port = server.metrics_address.rpartition(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(30)]
        while True:
            try:
                assert (await seen(server)).names
                break
            except OSError:
                continue
        for connection in silent:
            connection.close()


async def test_a_taken_port_and_a_wrong_address_are_told_with_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UnavailableError, match="choose another with --metrics"):
            Server(Endpoint("127.0.0.1:0", metrics=f"127.0.0.1:{taken.getsockname()[1]}"), [])
    for wrong in ("nonsense", "127.0.0.1:70000", ":9100"):
        with pytest.raises(ConfigurationError, match="--metrics is"):
            Server(Endpoint("127.0.0.1:0", metrics=wrong), [])


async def test_without_the_library_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def lacking(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "prometheus_client":
            raise ModuleNotFoundError(f"No module named {name!r}", name="prometheus_client")
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "peerloom.kit.metrics_server")
    monkeypatch.setattr(builtins, "__import__", lacking)
    with pytest.raises(ConfigurationError, match=r"pip install 'peerloom\[metrics\]'"):
        Server(Endpoint("127.0.0.1:0", metrics="127.0.0.1:0"), [])
    assert Server(Endpoint("127.0.0.1:0"), []).metrics_address == "", "who doesn't ask needs no library"


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
async def test_who_serves_them_beyond_loopback_is_warned(host: str, warned: bool) -> None:
    with capture_logs() as logs:
        async with serving(f"{host}:0") as (server, _):
            served = [one["address"] for one in logs if one["event"] == "metrics_served"]
            assert served == [server.metrics_address]
    assert any(one["event"] == "metrics_beyond_loopback" for one in logs) is warned
