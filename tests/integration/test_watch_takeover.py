"""Aim: whoever watches the nodes misses none, and sees none twice, while the registry passes on.

Method: two registries on one PostgreSQL, and the SDK's watch over both addresses. Nodes join and leave all
the time; the leader is killed, or frozen, in the midst of it. What was watched is compared with what was
acknowledged.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from conftest import ServiceHandle, StartService
from databases import new_database
from test_two_processes import SERVING, becomes, events_of

from peerloom import AsyncClient, NodeEvent
from peerloom.client.job_events import Patience
from peerloom.errors import DeadlineError, UnavailableError
from peerloom.kit.clock import SystemClock
from peerloom.kit.dialing import Dialer, RegistryPeer
from peerloom.kit.ids import new_request_id
from peerloom.v1 import registry_pb2

LIMIT_S = 150.0
CALL_S = 5.0
EACH = 5  # nodes that come and go before the leader is lost, and as many after it
# Nobody beats here, and a slow machine must not make that look like a death.
QUIET = ("--suspect-after-s", "300", "--dead-after-s", "600")
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
async def pair(
    start_service: StartService, tmp_path: Path
) -> AsyncIterator[tuple[ServiceHandle, ServiceHandle]]:
    """Who leads, and who stands by."""
    with new_database("postgresql", tmp_path) as url:
        leader = start_service("registry", "--database", url, *QUIET)
        await becomes(leader.address, SERVING)
        yield leader, start_service("registry", "--database", url, *QUIET)


class Visitors:
    """Nodes that join and leave one after the other, by calls that are made again until they are answered."""

    def __init__(self, registry: RegistryPeer) -> None:
        self._registry = registry
        self.acknowledged: list[tuple[str, str]] = []
        self._gone = asyncio.Condition()
        self._is_over = False

    def end(self) -> None:
        """Who has come leaves, and nobody comes any more."""
        self._is_over = True

    async def come_and_go(self) -> None:
        """Until `end`."""
        while not self._is_over:
            lease_id = await self.join(f"node{len(self.acknowledged) // 2}")
            await self._insist("Deregister", registry_pb2.DeregisterRequest(lease_id=lease_id))
            self.acknowledged.append((self.acknowledged[-1][0], "left"))
            async with self._gone:
                self._gone.notify_all()

    async def join(self, name: str) -> str:
        """Registers a node; its lease."""
        spec = registry_pb2.NodeSpec(name=name, address="10.0.0.1:7500", slots=1)
        request = registry_pb2.RegisterRequest(spec=spec, node_key="0" * 16, request_id=new_request_id())
        lease_id = str((await self._insist("Register", request)).lease_id)
        self.acknowledged.append((name, "registered"))
        return lease_id

    async def wait_for(self, more: int) -> None:
        """Until so many more have come and gone."""
        target = len(self.acknowledged) // 2 + more
        async with self._gone:
            await self._gone.wait_for(lambda: len(self.acknowledged) // 2 >= target)

    async def _insist(self, name: str, request: Any) -> Any:
        patience = Patience(LIMIT_S, SystemClock())
        while True:
            try:
                return await self._registry.call(getattr(self._registry.stub, name), request, CALL_S)
            except (UnavailableError, DeadlineError) as error:
                await patience.pause(error)


async def watch_until(client: AsyncClient, name: str, seen: list[NodeEvent]) -> None:
    """Follows the nodes until the one of this name has registered."""
    async with aclosing(client.watch_nodes()) as events:
        async for event in events:
            seen.append(event)
            if event.node.name == name:
                return


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_watch_sees_each_node_once_while_the_registry_passes_on(
    pair: tuple[ServiceHandle, ServiceHandle], how: signal.Signals
) -> None:
    leader, standby = pair
    both, seen = f"{leader.address},{standby.address}", list[NodeEvent]()
    async with asyncio.timeout(LIMIT_S), Dialer().registry(both) as registry:
        visitors = Visitors(registry)
        async with AsyncClient(both, patience_s=LIMIT_S) as client, asyncio.TaskGroup() as tasks:
            tasks.create_task(watch_until(client, "last", seen))
            visits = tasks.create_task(visitors.come_and_go())
            await visitors.wait_for(EACH)
            leader.process.send_signal(how)
            await becomes(standby.address, SERVING)
            await visitors.wait_for(EACH)
            visitors.end()
            await visits
            await visitors.join("last")
        log = await events_of(registry)
    assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
    assert [(event.sequence, event.node.name) for event in seen] == log
    assert [(event.node.name, event.kind) for event in seen] == visitors.acknowledged
