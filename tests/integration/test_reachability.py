"""The registry's verdict on a node, by real servers: who answers there must be the node that asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from made_identities import Signer

from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import Identity
from peerloom.kit.principal import Principal, Role
from peerloom.kit.server import Endpoint, Server
from peerloom.services.registry.discovery.dialling_back import ReachabilityCheck
from peerloom.v1.node_agent_pb2 import HandshakeRequest, HandshakeResponse
from peerloom.v1.node_agent_pb2_grpc import (
    NodeAgentServiceServicer,
    add_NodeAgentServiceServicer_to_server,
)

LIMIT_S = 30.0


class Greeting(NodeAgentServiceServicer):
    """An agent that says this name."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def Handshake(self, request: HandshakeRequest, context: Any) -> HandshakeResponse:  # noqa: N802
        return HandshakeResponse(name=self._name)


@asynccontextmanager
async def agent(name: str, identity: Identity | None = None) -> AsyncIterator[str]:
    """Its address."""
    server = Server(Endpoint("127.0.0.1:0", identity), ("peerloom.v1.NodeAgentService",))
    server.add_servicer(add_NodeAgentServiceServicer_to_server, Greeting(name))
    async with server:
        await server.start({})
        yield server.address


async def test_with_certificates_the_node_itself_must_answer(tmp_path: Path) -> None:
    """Private addresses are everywhere: another node may well have the same one near the registry."""
    signer = Signer(tmp_path)
    check = ReachabilityCheck(Dialer(signer.identity(Principal(Role.REGISTRY, "registry", "registry"))))
    mine, other = signer.node("node-1"), signer.node("node-2")
    async with asyncio.timeout(LIMIT_S), agent("ada", mine) as here, agent("ada", other) as there:
        assert await check.why_not(mine.principal, "ipv4:10.0.0.1:1", "ada", here) == ""
        reason = await check.why_not(mine.principal, "ipv4:10.0.0.1:1", "ada", there)
        assert reason == f"The registry doesn't reach ada at {there}."


async def test_without_certificates_its_name_must_do() -> None:
    check = ReachabilityCheck(Dialer())
    async with asyncio.timeout(LIMIT_S):
        async with agent("ada") as here:
            assert await check.why_not(None, "ipv4:10.0.0.1:1", "ada", here) == ""
            reason = await check.why_not(None, "ipv4:10.0.0.1:1", "bob", here)
            assert reason == f"Another machine answers the registry at {here}."
        assert "doesn't reach ada" in await check.why_not(None, "ipv4:10.0.0.1:1", "ada", here)
