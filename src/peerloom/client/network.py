"""What can be asked about a system's nodes and services, as coroutines: `AsyncClient` has all of it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from peerloom.client.conversions.nodes import node_of, session_of
from peerloom.client.conversions.services import endpoints_of
from peerloom.client.node_events import watch_registry
from peerloom.client.remote_services import Services
from peerloom.client.requests import node_states
from peerloom.client.types.nodes import Node, NodeEvent, ServiceEndpoint, Session
from peerloom.client.types.shown import Listing
from peerloom.v1 import registry_pb2


class AsyncNetwork:
    """The nodes and services of the system that `services` reaches; see `AsyncClient` for the rest."""

    def __init__(self, services: Services, patience_s: float) -> None:
        self.address: str = services.address.text
        self._services = services
        self._patience_s, self._clock = patience_s, services.transport.clock

    async def nodes(
        self, *, states: Sequence[str] = (), labels: Mapping[str, str] | None = None
    ) -> list[Node]:
        """All nodes in one of `states` (e.g. "alive"; empty: any) that carry all `labels`, by name."""
        request = registry_pb2.ListNodesRequest(states=node_states(states), labels=labels or {})
        found = await self._services.registry.pages(
            lambda stub: stub.ListNodes, request, lambda page: page.nodes
        )
        return Listing(node_of(each) for each in found)

    async def node(self, name: str) -> Node:
        """One node by name or id. Raises NotFoundError with the nearest names."""
        request = registry_pb2.GetNodeRequest(node=name)
        return node_of((await self._services.registry.call(lambda stub: stub.GetNode, request)).node)

    async def watch_nodes(self, after: int = 0) -> AsyncGenerator[NodeEvent, None]:
        """Every change of a node after the sequence number `after`, then live ones, without end.

        From 0 on: at least the newest event of every node. A stream that breaks, or a registry that restarts,
        makes no gap and no repeat. Raises UnavailableError when the registry is away for longer than the
        client's patience, InvalidArgumentError for an `after` beyond the newest event, and
        FailedPreconditionError (EVENTS_FORGOTTEN, REGISTRY_CHANGED) where it must be watched anew from 0.
        """
        async with aclosing(watch_registry(self._services, after, self._patience_s, self._clock)) as events:
            async for event in events:
                yield event

    async def drain(self, name: str, *, undo: bool = False) -> Node:
        """Gives a node no new work, its running work goes on; `undo` takes it back into service."""
        request = registry_pb2.DrainRequest(node=name, undo=undo)
        return node_of((await self._services.registry.call(lambda stub: stub.Drain, request)).node)

    async def remove_node(self, name: str, *, force: bool = False) -> Node:
        """Has the registry forget a node, and the selector with it; returns it as it was.

        Raises FailedPreconditionError for a node whose session is open, unless `force` closes that. A node
        that still runs then comes back as a new one.
        """
        request = registry_pb2.RemoveNodeRequest(node=name, force=force)
        return node_of((await self._services.registry.call(lambda stub: stub.RemoveNode, request)).node)

    async def sessions(self, node: str = "", *, limit: int | None = None) -> list[Session]:
        """Online periods of a node, or of all, newest first; at most `limit`."""
        request = registry_pb2.ListSessionsRequest(node=node)
        found = await self._services.registry.pages(
            lambda stub: stub.ListSessions, request, lambda page: page.sessions, limit
        )
        return Listing(session_of(each) for each in found)

    async def interruptions(self, node: str = "", *, limit: int | None = None) -> list[Session]:
        """Sessions that ended without notice, of a node or of all, newest first; at most `limit`."""
        request = registry_pb2.ListInterruptionsRequest(node=node)
        found = await self._services.registry.pages(
            lambda stub: stub.ListInterruptions, request, lambda page: page.interruptions, limit
        )
        return Listing(session_of(each) for each in found)

    async def services(self) -> list[ServiceEndpoint]:
        """The registry and all services that announced themselves there, each asked for its health."""
        request = registry_pb2.ListServicesRequest()
        answer = await self._services.registry.call(lambda stub: stub.ListServices, request)
        endpoints = endpoints_of(self.address, answer)
        health = await asyncio.gather(*(self._services.health(each.name, each.address) for each in endpoints))
        return Listing(each.with_health(found) for each, found in zip(endpoints, health, strict=True))
