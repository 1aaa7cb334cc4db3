"""The tunnel of a node that nobody reaches, with real agents' servers, sockets and certificates.

Aim: what others send to a port at the relay comes to the node's own port and back, whole; nobody else gets
in.
"""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from made_identities import Signer

from peerloom.errors import PeerloomError, PermissionDeniedError, ResourceExhaustedError, UnavailableError
from peerloom.kit.dialing import Dialer, NodeAgentPeer
from peerloom.kit.identity import Identity
from peerloom.kit.interceptors import caller
from peerloom.kit.server import Endpoint, Server
from peerloom.services.node_agent.tunnels.relay_limits import RelayLimits
from peerloom.services.node_agent.tunnels.relay_server import RelayServer
from peerloom.services.node_agent.tunnels.tunnel import Tunnel
from peerloom.v1.node_agent_pb2 import OpenTunnelRequest, OpenTunnelResponse
from peerloom.v1.node_agent_pb2_grpc import (
    NodeAgentServiceServicer,
    add_NodeAgentServiceServicer_to_server,
)

LIMIT_S = 30.0
MUCH = 8 * 2**20
GENEROUS = RelayLimits(tunnels=8, connections=64, bytes_per_s=0.0, ports=range(0))


class RelayOnly(NodeAgentServiceServicer):
    """The one method of an agent that a tunnel needs."""

    def __init__(self, relay: RelayServer) -> None:
        self._relay = relay

    async def OpenTunnel(  # noqa: N802  # gRPC's names
        self, request_iterator: AsyncIterator[OpenTunnelRequest], context: Any
    ) -> AsyncIterator[OpenTunnelResponse]:
        who = caller.get()
        node = who.principal.uri if who.principal is not None else ""
        async for answer in self._relay.serve(node, who.key, request_iterator):
            yield answer


@asynccontextmanager
async def relay_at(
    identity: Identity | None = None, limits: RelayLimits = GENEROUS
) -> AsyncIterator[tuple[str, RelayServer]]:
    """A relay on loopback: its agent's address, and it."""
    relay = RelayServer("127.0.0.1", "127.0.0.1", limits)
    server = Server(Endpoint("127.0.0.1:0", identity), ("peerloom.v1.NodeAgentService",))
    server.add_servicer(add_NodeAgentServiceServicer_to_server, RelayOnly(relay))
    async with server:
        await server.start({})
        server.start_task("relay", relay.keep)
        yield server.address, relay
        relay.close()


class HeldTunnel(Tunnel):
    """A tunnel, and the task that holds it."""

    def __init__(self, relay: NodeAgentPeer) -> None:
        super().__init__(relay)
        self.holding = asyncio.create_task(self.hold())


@asynccontextmanager
async def tunnel_to(address: str, identity: Identity | None = None) -> AsyncIterator[HeldTunnel]:
    """A node's tunnel, while it is held."""
    async with Dialer(identity).node_agent(address) as agent:
        tunnel = HeldTunnel(agent)
        try:
            yield tunnel
        finally:
            tunnel.holding.cancel()
            with suppress(asyncio.CancelledError, PeerloomError):
                await tunnel.holding


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        opened.settimeout(LIMIT_S)
        yield opened


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), LIMIT_S)


async def closed(address: str) -> None:
    """Returns when nobody listens there any more; who comes while a listener closes is reset."""
    with suppress(ConnectionRefusedError):
        while True:
            with suppress(ConnectionResetError):
                (await asyncio.to_thread(connected, address)).close()


def read_all(connection: socket.socket) -> bytes:
    connection.settimeout(LIMIT_S)
    return b"".join(iter(lambda: connection.recv(65536), b""))


def exchange(connection: socket.socket, data: bytes) -> bytes:
    """Sends all, ends that direction, and returns all that comes, at the same time."""
    connection.settimeout(LIMIT_S)

    def send() -> None:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    received = read_all(connection)
    sending.join(LIMIT_S)
    return received


async def test_much_goes_both_ways_at_once_and_comes_whole(listener: socket.socket) -> None:
    there, back = os.urandom(MUCH), os.urandom(MUCH)
    async with asyncio.timeout(LIMIT_S), relay_at() as (address, _), tunnel_to(address) as tunnel:
        told = await tunnel.forward("127.0.0.1", port_of(listener))
        with connected(told) as near:
            far, _ = await asyncio.to_thread(listener.accept)
            with far:
                came_back, came_there = await asyncio.gather(
                    asyncio.to_thread(exchange, near, there), asyncio.to_thread(exchange, far, back)
                )
    assert came_there == there
    assert came_back == back


async def test_one_direction_may_end_before_the_other_begins(listener: socket.socket) -> None:
    """As HTTP's old clients do, and gloo's last words."""
    async with asyncio.timeout(LIMIT_S), relay_at() as (address, _), tunnel_to(address) as tunnel:
        told = await tunnel.forward("127.0.0.1", port_of(listener))
        with connected(told) as near:
            near.sendall(b"question")
            near.shutdown(socket.SHUT_WR)
            far, _ = await asyncio.to_thread(listener.accept)
            with far:
                assert await asyncio.to_thread(read_all, far) == b"question"
                far.sendall(b"answer")
            assert await asyncio.to_thread(read_all, near) == b"answer"


async def test_a_port_is_opened_once_and_each_of_several_has_its_own() -> None:
    async with asyncio.timeout(LIMIT_S), relay_at() as (address, _), tunnel_to(address) as tunnel:
        first, again, other = await asyncio.gather(
            tunnel.forward("127.0.0.1", 7001),
            tunnel.forward("127.0.0.1", 7001),
            tunnel.forward("127.0.0.1", 7002),
        )
    assert first == again != other


async def test_connections_end_with_the_relay_and_who_asks_then_is_told(listener: socket.socket) -> None:
    async with asyncio.timeout(LIMIT_S), relay_at() as (address, relay), tunnel_to(address) as tunnel:
        with connected(await tunnel.forward("127.0.0.1", port_of(listener))) as near:
            far, _ = await asyncio.to_thread(listener.accept)
            with far:
                relay.close()
                assert await asyncio.to_thread(read_all, far) == b""
                assert await asyncio.to_thread(read_all, near) == b""
        await asyncio.wait({tunnel.holding})
        with pytest.raises(UnavailableError, match="is lost"):
            await tunnel.forward("127.0.0.1", port_of(listener))


async def test_who_comes_as_the_relay_closes_is_closed_too() -> None:
    """Whether it was taken, was about to say for whom it is, or waits to be taken."""
    for turns in range(8):
        async with asyncio.timeout(LIMIT_S), relay_at() as (_, relay):
            with connected(f"127.0.0.1:{relay.data_port}") as near:
                for _ in range(turns):
                    await asyncio.sleep(0)
                relay.close()
                with suppress(ConnectionResetError):
                    assert await asyncio.to_thread(read_all, near) == b""


async def test_ports_close_with_the_tunnel(listener: socket.socket) -> None:
    async with asyncio.timeout(LIMIT_S), relay_at() as (address, _):
        async with tunnel_to(address) as tunnel:
            told = await tunnel.forward("127.0.0.1", port_of(listener))
            (await asyncio.to_thread(connected, told)).close()
        await closed(told)


async def test_a_port_whose_process_has_ended_is_closed(listener: socket.socket) -> None:
    """Another process may listen there later."""
    lives = [True]
    async with asyncio.timeout(LIMIT_S), relay_at() as (address, _), tunnel_to(address) as tunnel:
        told = await tunnel.forward("127.0.0.1", port_of(listener), lambda: bool(lives))
        lives.clear()
        with connected(told) as near:
            near.sendall(b"for whom?")
        await closed(told)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path / "identities")


async def test_only_nodes_of_this_system_get_a_tunnel(tmp_path: Path, signer: Signer) -> None:
    foreign = Signer(tmp_path / "elsewhere", serial=2)
    async with asyncio.timeout(LIMIT_S), relay_at(signer.node("node-1")) as (address, _):
        for stranger in (None, foreign.node("node-2")):
            async with Dialer(stranger).node_agent(address) as agent:
                with pytest.raises(UnavailableError):
                    await Tunnel(agent).hold()
        async with Dialer(signer.worker("worker-1", "job-1")).node_agent(address) as agent:
            with pytest.raises(PermissionDeniedError, match="isn't for the role worker"):
                await Tunnel(agent).hold()
        async with tunnel_to(address, signer.node("node-2")) as tunnel:
            assert await tunnel.forward("127.0.0.1", 7001)


async def test_who_guesses_gets_no_connection_that_waits_for_another(listener: socket.socket) -> None:
    async with asyncio.timeout(LIMIT_S), relay_at() as (address, relay), tunnel_to(address) as tunnel:
        told = await tunnel.forward("127.0.0.1", port_of(listener))
        with connected(f"127.0.0.1:{relay.data_port}") as guessing, connected(told) as near:
            guessing.sendall(b"?" * 16)
            assert await asyncio.to_thread(read_all, guessing) == b""
            far, _ = await asyncio.to_thread(listener.accept)
            with far:
                far.sendall(b"yours")
            assert await asyncio.to_thread(read_all, near) == b"yours"


async def test_a_node_that_comes_back_takes_its_own_place(signer: Signer) -> None:
    limits = RelayLimits(tunnels=2, connections=4, bytes_per_s=0.0, ports=range(0))
    node = signer.node("node-2")
    async with (
        asyncio.timeout(LIMIT_S),
        relay_at(signer.node("node-1"), limits) as (address, _),
        tunnel_to(address, node) as first,
    ):
        await first.forward("127.0.0.1", 7001)
        async with tunnel_to(address, node) as second:
            assert await second.forward("127.0.0.1", 7001)
            await asyncio.wait({first.holding})
            with pytest.raises(UnavailableError, match="is lost"):
                await first.forward("127.0.0.1", 7001)


async def test_one_owner_has_half_of_the_tunnels_and_one_tunnel_half_of_the_connections(
    signer: Signer, listener: socket.socket
) -> None:
    limits = RelayLimits(tunnels=2, connections=4, bytes_per_s=0.0, ports=range(0))
    async with (
        asyncio.timeout(LIMIT_S),
        relay_at(signer.node("node-1"), limits) as (address, _),
        tunnel_to(address, signer.node("node-2")) as tunnel,
    ):
        told = await tunnel.forward("127.0.0.1", port_of(listener))
        async with Dialer(signer.node("node-3")).node_agent(address) as agent:
            with pytest.raises(ResourceExhaustedError, match="1 of one owner"):
                await Tunnel(agent).hold()
        with connected(told), connected(told), connected(told) as third:
            taken = [(await asyncio.to_thread(listener.accept))[0] for _ in range(2)]
            assert await asyncio.to_thread(read_all, third) == b""
            for far in taken:
                far.close()


async def test_a_tunnel_has_a_bounded_number_of_ports() -> None:
    async with asyncio.timeout(LIMIT_S), relay_at() as (address, _), tunnel_to(address) as tunnel:
        for port in range(7001, 7065):
            await tunnel.forward("127.0.0.1", port)
        with pytest.raises(ResourceExhaustedError, match="at most 64 ports"):
            await tunnel.forward("127.0.0.1", 7065)


async def test_a_relay_opens_the_ports_that_its_owner_allows_and_no_others() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        free = port_of(probe)
    limits = RelayLimits(tunnels=8, connections=64, bytes_per_s=0.0, ports=range(free, free + 1))
    async with asyncio.timeout(LIMIT_S), relay_at(limits=limits) as (address, relay):
        assert relay.data_port == free
        async with tunnel_to(address) as tunnel:
            with pytest.raises(ResourceExhaustedError, match="can't listen"):
                await tunnel.forward("127.0.0.1", 7001)
