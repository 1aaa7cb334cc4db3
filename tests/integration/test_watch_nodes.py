"""The SDK's watch of nodes over a real registry that is killed, started again, and replaced by another."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from node_agent_parts import StartService

from peerloom import AsyncClient, Client, FailedPreconditionError, NodeEvent
from peerloom.kit.dialing import Dialer
from peerloom.v1.registry_pb2 import NodeSpec, RegisterRequest

LIMIT_S = 60.0


async def register(address: str, name: str) -> None:
    """Opens a session of a node that never beats."""
    spec = NodeSpec(name=name, address="127.0.0.1:1", slots=1)
    request = RegisterRequest(spec=spec, node_key="k" * 16, request_id=str(uuid.uuid4()))
    async with Dialer().registry(address) as registry:
        await registry.call(registry.stub.Register, request)


async def registration_of(events: AsyncIterator[NodeEvent], name: str, into: list[NodeEvent]) -> None:
    """Reads on until the node has registered."""
    async for event in events:
        into.append(event)
        if (event.kind, event.node.name) == ("registered", name):
            return


async def test_a_watch_goes_on_over_a_killed_registry_without_gap_or_repeat(
    start_service: StartService, tmp_path: Path
) -> None:
    state = ("--state", str(tmp_path / "registry"))
    registry, seen = start_service("registry", *state), list[NodeEvent]()
    async with asyncio.timeout(LIMIT_S), AsyncClient(registry.address) as client:
        async with aclosing(client.watch_nodes()) as events:
            await register(registry.address, "anna")
            await registration_of(events, "anna", seen)
            registry.kill()
            start_service("registry", *state, "--listen", registry.address)
            await register(registry.address, "berta")
            await registration_of(events, "berta", seen)
        assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
        async with aclosing(client.watch_nodes(after=1)) as later:
            assert (await anext(later)).sequence == 2


async def test_another_registry_at_the_address_ends_the_watch(
    start_service: StartService, tmp_path: Path
) -> None:
    """Its numbers mean something else: going on by them would tell of some changes and hide others."""
    registry = start_service("registry", "--state", str(tmp_path / "one"))
    async with asyncio.timeout(LIMIT_S), AsyncClient(registry.address) as client:
        await register(registry.address, "anna")
        async with aclosing(client.watch_nodes()) as events:
            await registration_of(events, "anna", [])
            registry.kill()
            start_service("registry", "--state", str(tmp_path / "two"), "--listen", registry.address)
            await register(registry.address, "berta")
            with pytest.raises(FailedPreconditionError) as caught:
                await registration_of(events, "berta", [])
    assert caught.value.reason == "REGISTRY_CHANGED"


def test_the_sync_client_watches_too(start_service: StartService, tmp_path: Path) -> None:
    registry = start_service("registry", "--state", str(tmp_path))
    asyncio.run(register(registry.address, "anna"))
    with Client(registry.address) as client:
        event = next(iter(client.watch_nodes()))
    assert (event.kind, event.node.name, str(event)[:15]) == ("registered", "anna", "anna registered")
