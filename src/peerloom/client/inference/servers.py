"""Which nodes can answer: those alive, by who holds the model, what was measured, and belief among equals."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar, cast

from peerloom.client.inference.server import Server, ServerNode
from peerloom.client.services import Services
from peerloom.errors import DeadlineError, NotFoundError, PeerloomError, UnavailableError
from peerloom.v1.artifact_pb2 import ArtifactHolder
from peerloom.v1.registry_pb2 import NODE_STATE_ALIVE, ListHoldersRequest, ListNodesRequest
from peerloom.v1.selector_pb2 import ListBeliefsRequest

T = TypeVar("T")
AWAY = (UnavailableError, DeadlineError)  # what says nothing but that this node doesn't answer now
FRESH_S = 2.0
USABLE_S = 10.0
PENALTY_S = 5.0
# What nobody waits for would slow down a model that computes here.
PUT_OFF_S = 1.0
SAME_S = 0.001  # closer than this, two nodes are equals and belief decides


class Servers:
    """The nodes' inference servers. Belongs to the event loop that uses it first.

    What is asked beside for the next time is put off, at most a second, until `idle` is set.
    """

    def __init__(self, services: Services, idle: asyncio.Event) -> None:
        self._services = services
        self._idle = idle
        self._met: dict[str, Server] = {}
        self._memory: dict[str, tuple[float, object]] = {}
        self._asking: dict[str, asyncio.Task[PeerloomError | None]] = {}
        self._failed_until_s: dict[str, float] = {}

    async def known(self, digest: str, excluded: Sequence[str] = (), first: str = "") -> list[Server]:
        """All that may be asked, best first; some may not have been met yet. Raises a PeerloomError.

        The node named `first` comes before all others, unless it failed just now.
        """
        nodes, holders = await self._alive(), await self._holder_ids(digest)
        now_s = time.monotonic()
        # What failed just now comes last: it may be back, and there may be nobody else.
        failed = {node_id for node_id, until_s in self._failed_until_s.items() if until_s > now_s}
        servers = [self._server(node) for node in nodes if node.name not in excluded]
        return sorted(
            servers,
            key=lambda server: (
                server.node.node_id in failed,
                server.node.name != first,
                *_rank(server, digest, holders),
            ),
        )

    async def ready(
        self, digest: str, count: int, excluded: Sequence[str] = (), first: str = ""
    ) -> list[Server]:
        """At least one and at most `count` servers that hold the model ready, best first.

        Raises UnavailableError, with what each said, when there is none.
        """
        servers = await self.known(digest, excluded, first)
        found: list[Server] = []
        failures: list[PeerloomError] = []
        while servers and len(found) < count:
            tried, servers = servers[: count - len(found)], servers[count - len(found) :]
            results = await asyncio.gather(*(self._make_ready(one, digest) for one in tried))
            for server, failure in zip(tried, results, strict=True):
                if failure is None:
                    found.append(server)
                else:
                    failures.append(failure)
        if not found:
            raise _nobody(digest, failures)
        return found

    async def holders(self) -> list[ArtifactHolder]:
        """Who holds every model beside the nodes: the trainer. Empty while it is away."""
        return await self._remembered("trainer", self._trainer, [])

    async def _trainer(self) -> list[ArtifactHolder]:
        return [ArtifactHolder(name="trainer", address=(await self._services.peer("trainer")).address)]

    def look(self, servers: Sequence[Server]) -> None:
        """Measures those met that weren't for 2 s; the figures are for the next time."""
        now_s = time.monotonic()
        for server in servers:
            name = f"look at {server.node.node_id}"
            asking = self._asking.get(name)
            if server.address and now_s - server.looked_s > FRESH_S and (asking is None or asking.done()):
                self._asking[name] = asyncio.create_task(self._refresh_beside(name, server.look))

    async def meet(self, server: Server) -> bool:
        """Opens the line to a server; False, and a pause for it, when that fails."""
        try:
            await server.open()
        except PeerloomError:
            await self.drop(server)
            return False
        return True

    async def drop(self, server: Server) -> None:
        """Forgets a server that failed; for 5 s it is the last to be asked."""
        self._failed_until_s[server.node.node_id] = time.monotonic() + PENALTY_S
        if self._met.pop(server.node.node_id, None) is not None:
            await server.close()

    async def close(self) -> None:
        """Closes all lines."""
        for asking in self._asking.values():
            asking.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        for server in self._met.values():
            await server.close()
        self._met.clear()

    async def _make_ready(self, server: Server, digest: str) -> PeerloomError | None:
        try:
            await server.open()
            if digest not in server.loaded:
                await server.load(digest, await self.holders())
        except PeerloomError as error:
            if isinstance(error, AWAY):
                await self.drop(server)
            return error
        return None

    def _server(self, node: ServerNode) -> Server:
        met = self._met.get(node.node_id)
        if met is None or met.node.agent_address != node.agent_address:
            met = self._met[node.node_id] = Server(node, self._services.tls_ca, self._services.as_node)
        met.node = node
        return met

    async def _alive(self) -> list[ServerNode]:
        return await self._remembered("nodes", self._ask_for_nodes, None)

    async def _ask_for_nodes(self) -> list[ServerNode]:
        request = ListNodesRequest(states=[NODE_STATE_ALIVE])
        found, beliefs = await asyncio.gather(
            self._services.pages("registry", "ListNodes", request, "nodes"), self._beliefs()
        )
        return [
            ServerNode(
                node.node_id,
                node.spec.name,
                node.spec.address,
                beliefs.get(node.node_id, 0.0),
                node.spec.speed.matmul_gflops,
            )
            for node in found
            if not node.draining
        ]

    async def _beliefs(self) -> dict[str, float]:
        # Without a selector one can still ask nodes, only not the trusted ones first.
        with suppress(PeerloomError):
            found = await self._services.pages("selector", "ListBeliefs", ListBeliefsRequest(), "beliefs")
            return {belief.node_id: belief.belief for belief in found}
        return {}

    async def _holder_ids(self, digest: str) -> set[str]:
        async def ask() -> set[str]:
            answer = await self._services.call("registry", "ListHolders", ListHoldersRequest(digest=digest))
            return {holder.node_id for holder in answer.holders}

        return await self._remembered(digest, ask, set())

    async def _remembered(self, name: str, ask: Callable[[], Awaitable[T]], without: T | None) -> T:
        """What `ask` answers, up to 2 s old; older up to 10 s while it is asked anew beside.

        `without` stands for an answer that can't be had; with None the error is raised.
        """
        now_s = time.monotonic()
        asked_s, value = self._memory.get(name, (-USABLE_S, None))
        if now_s - asked_s < FRESH_S:
            return cast(T, value)
        asking = self._asking.get(name)
        usable = now_s - asked_s < USABLE_S
        if asking is None or asking.done():
            refresh = self._refresh_beside if usable else self._refresh
            asking = self._asking[name] = asyncio.create_task(refresh(name, ask))
        if usable:
            return cast(T, value)
        failure = await asyncio.shield(asking)
        if failure is not None:
            if without is None:
                raise failure
            return without
        return cast(T, self._memory[name][1])

    async def _refresh_beside(self, name: str, ask: Callable[[], Awaitable[object]]) -> PeerloomError | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PUT_OFF_S):
                await self._idle.wait()
        return await self._refresh(name, ask)

    async def _refresh(self, name: str, ask: Callable[[], Awaitable[object]]) -> PeerloomError | None:
        try:
            self._memory[name] = (time.monotonic(), await ask())
        except PeerloomError as error:
            return error
        return None


def _rank(server: Server, digest: str, holders: set[str]) -> tuple[bool, bool, float, float]:
    away_s = server.round_trip_s + server.queue_s
    return (
        digest not in server.loaded,
        server.node.node_id not in holders,
        round(away_s / SAME_S) * SAME_S,
        -server.node.belief,
    )


def _nobody(digest: str, failures: Sequence[PeerloomError]) -> PeerloomError:
    if failures and all(isinstance(failure, NotFoundError) for failure in failures):
        return failures[0]
    lasting = [failure for failure in failures if not isinstance(failure, AWAY)]
    if lasting:
        return lasting[0]
    said = "; ".join(failure.message for failure in failures[:3]) or "no node is alive that takes work"
    return UnavailableError(
        f"No node can answer with the model {digest[:12]}: {said} See: peerloom nodes list",
        reason="NO_INFERENCE_NODE",
    )
