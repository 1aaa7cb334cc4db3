"""Which nodes can answer: those alive, by who holds the model, what was measured, and belief among equals."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar, cast

from peerloom.client.remote_services import Services
from peerloom.errors import DeadlineError, NotFoundError, PeerloomError, UnavailableError
from peerloom.inference.client.replica import Replica, ReplicaNode
from peerloom.kit.clock import Clock
from peerloom.kit.limits import LIE_PRICE
from peerloom.kit.ownership import owner_of
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


class Replicas:
    """The nodes' inference servers. Belongs to the event loop that uses it first.

    What is asked for the next time is put off, at most a second, until `idle` is set.
    """

    def __init__(self, services: Services, idle: asyncio.Event, clock: Clock) -> None:
        self._services = services
        self._idle, self._clock = idle, clock
        self._met: dict[str, Replica] = {}
        self._memory: dict[str, tuple[float, object]] = {}
        self._asking: dict[str, asyncio.Task[PeerloomError | None]] = {}
        self._failed_until_s: dict[str, float] = {}
        self._distrusted: dict[str, str] = {}

    async def known(self, digest: str, excluded: Sequence[str] = (), first: str = "") -> list[Replica]:
        """All that may be asked, best first; some may not have been met yet. Raises a PeerloomError.

        The node named `first` comes before all others, unless it failed just now.
        """
        nodes, holders = await self._alive(), await self._holder_ids(digest)
        now_s = self._clock.monotonic_s()
        # What failed just now comes last: it may be back, and there may be nobody else.
        failed = {node_id for node_id, until_s in self._failed_until_s.items() if until_s > now_s}
        usable = [n for n in nodes if n.name not in excluded and n.node_id not in self._distrusted]
        replicas = [self._server(node) for node in usable]
        return sorted(
            replicas,
            key=lambda replica: (
                replica.node.node_id in failed,
                replica.node.name != first,
                *_rank(replica, digest, holders),
            ),
        )

    async def ready(
        self, digest: str, count: int, excluded: Sequence[str] = (), first: str = ""
    ) -> list[Replica]:
        """At least one and at most `count` replicas that hold the model ready, best first.

        Raises UnavailableError, with what each said, when there is none.
        """
        replicas = await self.known(digest, excluded, first)
        found, failures = await first_of(replicas, count, lambda one: self.make_ready(one, digest))
        if not found:
            raise self.nobody(digest, failures, excluded)
        return found

    def nobody(
        self, digest: str, failures: Sequence[PeerloomError], excluded: Sequence[str] = ()
    ) -> PeerloomError:
        """Says that no node can answer beside those `excluded`, and what was in the way."""
        return _nobody(digest, failures, list(self._distrusted.values()), "other " if excluded else "")

    async def holding(self, digest: str) -> list[Replica]:
        """Those of `known` that have the model already, and didn't fail just now."""
        holders, now_s = await self._holder_ids(digest), self._clock.monotonic_s()
        return [
            replica
            for replica in await self.known(digest)
            if (digest in replica.loaded or replica.node.node_id in holders)
            and self._failed_until_s.get(replica.node.node_id, now_s) <= now_s
        ]

    def distrust(self, node: ReplicaNode) -> None:
        """This client never asks the node again: it answered wrongly."""
        self._distrusted[node.node_id] = node.name

    async def holders(self) -> list[ArtifactHolder]:
        """Who holds every model beside the nodes: the trainer. Empty while it is away."""
        return await self._remembered("trainer", self._trainer, [])

    async def _trainer(self) -> list[ArtifactHolder]:
        return [ArtifactHolder(name="trainer", address=(await self._services.trainer.peer()).address)]

    def look(self, replicas: Sequence[Replica]) -> None:
        """Measures those met that weren't for 2 s; the figures are for the next time."""
        now_s = self._clock.monotonic_s()
        for replica in replicas:
            name = f"look at {replica.node.node_id}"
            asking = self._asking.get(name)
            if replica.address and now_s - replica.looked_s > FRESH_S and (asking is None or asking.done()):
                self._asking[name] = asyncio.create_task(self._refresh_later(name, replica.look))

    async def meet(self, replica: Replica) -> PeerloomError | None:
        """Connects to a replica; what is in the way, and a pause for it, or None."""
        try:
            await replica.open()
        except PeerloomError as error:
            await self.drop(replica)
            return error
        return None

    def put_off(self, replica: Replica) -> None:
        """For 5 s this replica is the last to be asked."""
        self._failed_until_s[replica.node.node_id] = self._clock.monotonic_s() + PENALTY_S

    async def drop(self, replica: Replica) -> None:
        """Forgets a replica that failed, with its connection, and puts it off."""
        self.put_off(replica)
        if self._met.pop(replica.node.node_id, None) is not None:
            await replica.close()

    async def close(self) -> None:
        """Closes all channels."""
        for asking in self._asking.values():
            asking.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        for replica in self._met.values():
            await replica.close()
        self._met.clear()

    async def make_ready(self, replica: Replica, digest: str) -> PeerloomError | None:
        """Has the whole model ready at a replica; what is in the way, or None."""
        try:
            await replica.open()
            if digest not in replica.loaded:
                await replica.load(digest, await self.holders())
        except PeerloomError as error:
            if isinstance(error, AWAY):
                await self.drop(replica)
            return error
        return None

    def _server(self, node: ReplicaNode) -> Replica:
        met = self._met.get(node.node_id)
        if met is None or met.node.agent_address != node.agent_address:
            met = self._met[node.node_id] = Replica(
                node, self._services.dialer, self._services.as_node, self._clock
            )
        met.node = node
        return met

    async def _alive(self) -> list[ReplicaNode]:
        return await self._remembered("nodes", self._ask_for_nodes, None)

    async def _ask_for_nodes(self) -> list[ReplicaNode]:
        request = ListNodesRequest(states=[NODE_STATE_ALIVE])
        found, beliefs = await asyncio.gather(
            self._services.registry.pages(lambda stub: stub.ListNodes, request, lambda page: page.nodes),
            self._beliefs(),
        )
        return [
            ReplicaNode(
                node.node_id,
                node.spec.name,
                node.spec.address,
                beliefs.get(node.node_id, 0.0),
                node.spec.speed.matmul_gflops,
                owner_of(node.node_id, node.spec.address, dict(node.spec.labels), node.spec.owner),
            )
            for node in found
            if not node.draining
        ]

    async def _beliefs(self) -> dict[str, float]:
        # Without a selector one can still ask nodes, only not the trusted ones first.
        with suppress(PeerloomError):
            found = await self._services.selector.pages(
                lambda stub: stub.ListBeliefs, ListBeliefsRequest(), lambda page: page.beliefs
            )
            return {belief.node_id: belief.belief for belief in found}
        return {}

    async def _holder_ids(self, digest: str) -> set[str]:
        async def ask() -> set[str]:
            answer = await self._services.registry.call(
                lambda stub: stub.ListHolders, ListHoldersRequest(digest=digest)
            )
            return {holder.node_id for holder in answer.holders}

        return await self._remembered(digest, ask, set())

    async def _remembered(self, name: str, ask: Callable[[], Awaitable[T]], without: T | None) -> T:
        """What `ask` answers, up to 2 s old; older, up to 10 s, while `ask` runs for the next time.

        `without` stands for an answer that can't be had; with None the error is raised.
        """
        now_s = self._clock.monotonic_s()
        asked_s, value = self._memory.get(name, (-USABLE_S, None))
        if now_s - asked_s < FRESH_S:
            return cast(T, value)
        asking = self._asking.get(name)
        usable = now_s - asked_s < USABLE_S
        if asking is None or asking.done():
            refresh = self._refresh_later if usable else self._refresh
            asking = self._asking[name] = asyncio.create_task(refresh(name, ask))
        if usable:
            return cast(T, value)
        failure = await asyncio.shield(asking)
        if failure is not None:
            if without is None:
                raise failure
            return without
        return cast(T, self._memory[name][1])

    async def _refresh_later(self, name: str, ask: Callable[[], Awaitable[object]]) -> PeerloomError | None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PUT_OFF_S):
                await self._idle.wait()
        return await self._refresh(name, ask)

    async def _refresh(self, name: str, ask: Callable[[], Awaitable[object]]) -> PeerloomError | None:
        try:
            self._memory[name] = (self._clock.monotonic_s(), await ask())
        except PeerloomError as error:
            return error
        return None


async def first_of(
    replicas: Sequence[Replica], count: int, reach: Callable[[Replica], Awaitable[PeerloomError | None]]
) -> tuple[list[Replica], list[PeerloomError]]:
    """The first `count` replicas that can be reached, as many at once as are wanting, and what failed."""
    found: list[Replica] = []
    failures: list[PeerloomError] = []
    left = list(replicas)
    while left and len(found) < count:
        wanting = count - len(found)
        tried, left = left[:wanting], left[wanting:]
        for replica, failure in zip(tried, await asyncio.gather(*map(reach, tried)), strict=True):
            if failure is None:
                found.append(replica)
            else:
                failures.append(failure)
    return found, failures


def _rank(replica: Replica, digest: str, holders: set[str]) -> tuple[bool, bool, bool, float, float]:
    return (
        replica.node.belief <= -LIE_PRICE,  # a proven liar, when there is nobody else
        digest not in replica.loaded,
        replica.node.node_id not in holders,
        round(replica.away_s / SAME_S) * SAME_S,
        -replica.node.belief,
    )


def _nobody(
    digest: str, failures: Sequence[PeerloomError], distrusted: Sequence[str], other: str
) -> PeerloomError:
    if failures and all(isinstance(failure, NotFoundError) for failure in failures):
        return failures[0]
    lasting = [failure for failure in failures if not isinstance(failure, AWAY)]
    if lasting:
        return lasting[0]
    said = (
        "; ".join(failure.message for failure in failures[:3]) or f"no {other}node is alive that takes work"
    )
    if distrusted:
        said += f" ({', '.join(distrusted)} answered this client wrongly and is not asked again)"
    return UnavailableError(
        f"No {other}node can answer with the model {digest[:12]}: {said} See: peerloom nodes list",
        reason="NO_INFERENCE_NODE",
    )
