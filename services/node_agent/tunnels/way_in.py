"""The way in: whether others reach this node directly, or through which relay, and where just now.

The registry dials the node back when it starts, and every few minutes. Where it doesn't get through, the node
keeps a tunnel to one of the nodes that it names, the one that answers soonest; a tunnel that is lost is made
anew, to another relay if that one is gone, and the next heartbeat tells where the node is then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from peerloom.artifacts.fetch.bulk_server import BulkServer
from peerloom.errors import PeerloomError, UnavailableError
from peerloom.kit.backoff import Backoff
from peerloom.kit.dialing import Dialer, NodeAgentPeer, RegistryPeer
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.membership.node_status import NodeStatus
from peerloom.services.node_agent.tunnels.tunnel import Tunnel
from peerloom.v1.node_agent_pb2 import HandshakeRequest
from peerloom.v1.registry_pb2 import CheckReachabilityRequest, CheckReachabilityResponse, RelayOffer

CHECK_INTERVAL_S = 300.0  # of a node that is reached
_CHECK_S, _GREET_S = 8.0, 3.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_log = get_logger()


class WayIn:
    """Of the node `name`, whose own address is `direct` and whose services listen at `host`.

    `bulk` is told which of its ports others reach. `sleep` waits so many seconds.
    """

    def __init__(
        self,
        name: str,
        direct: str,
        host: str,
        registry: RegistryPeer,
        dialer: Dialer,
        status: NodeStatus,
        bulk: BulkServer | None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._name, self._direct, self._host = name, direct, host
        self._registry, self._dialer, self._status, self._bulk = registry, dialer, status, bulk
        self._sleep = sleep
        self._tunnel: Tunnel | None = None
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self.settled = asyncio.Event()  # once it is known how others reach this node
        status.note_way_in(direct, "")

    async def keep(self) -> None:
        """Finds a way in, and another when that is lost, until cancelled."""
        while True:
            verdict = await self._look()
            if verdict is not None and verdict.relays:
                await self._go_through(verdict)
            else:
                self._tell_direct(verdict)
            is_reached = verdict is not None and verdict.reachable
            if is_reached:
                self._backoff.succeeded()
            await self._sleep(CHECK_INTERVAL_S if is_reached else self._backoff.next_pause_s())

    async def reached_at(self, port: int, host: str = "", is_open: Callable[[], bool] = lambda: True) -> str:
        """Where others reach a port at which this node listens, at `host` ("": where all services do).

        Raises UnavailableError while the tunnel is made anew, ResourceExhaustedError as `Tunnel.forward`.
        """
        if self._tunnel is None and self._status.via:
            raise UnavailableError("This node's tunnel to its relay is being made anew. Try again.")
        if self._tunnel is None:
            return f"{self._direct.rpartition(':')[0]}:{port}"
        return await self._tunnel.forward(host or self._host, port, is_open)

    async def _look(self) -> CheckReachabilityResponse | None:
        """What the registry finds; None if it can't say. That a node isn't reached is looked at twice."""
        request, answer = CheckReachabilityRequest(name=self._name, address=self._direct), None
        for _ in range(2):
            try:
                answer = await self._registry.call(self._registry.stub.CheckReachability, request, _CHECK_S)
            except PeerloomError as error:
                _log.warning("reachability_unknown", reason=error.message)
                return None
            if answer.reachable:
                break
        return answer

    async def _go_through(self, verdict: CheckReachabilityResponse) -> None:
        """Keeps a tunnel to one of the relays, the first that answers; returns when it is lost."""
        for offer in await self._nearest(list(verdict.relays)):
            async with self._agent(offer) as agent:
                tunnel = Tunnel(agent)
                holding = asyncio.create_task(tunnel.hold())
                try:
                    if await self._move_into(tunnel, offer.name):
                        await asyncio.wait({holding})
                        _log.warning("tunnel_lost", via=offer.name, reason=str(holding.exception()))
                        return
                finally:
                    self._tunnel = None
                    holding.cancel()
                    with suppress(asyncio.CancelledError, PeerloomError):
                        await holding
        self._tell_direct(verdict)

    async def _move_into(self, tunnel: Tunnel, via: str) -> bool:
        try:
            address = await tunnel.forward(self._host, int(self._direct.rpartition(":")[2]))
            await self._move_bulk(tunnel)
        except PeerloomError as error:
            _log.warning("tunnel_failed", via=via, reason=error.message)
            return False
        self._tunnel = tunnel
        self._backoff.succeeded()
        _log.info("tunnel_made", via=via, address=address)
        self._status.note_way_in(address, via)
        self.settled.set()
        return True

    async def _move_bulk(self, tunnel: Tunnel) -> None:
        if self._bulk is not None:
            address = await tunnel.forward(self._host, self._bulk.port)
            self._bulk.told_port = int(address.rpartition(":")[2])

    def _tell_direct(self, verdict: CheckReachabilityResponse | None) -> None:
        if verdict is not None and not verdict.reachable:
            _log.warning(
                "not_reached", address=self._direct, reason=verdict.reason, hint="no node is a relay"
            )
        if self._bulk is not None:
            self._bulk.told_port = self._bulk.port
        self._status.note_way_in(self._direct, "")
        self.settled.set()

    async def _nearest(self, offers: list[RelayOffer]) -> list[RelayOffer]:
        """Those that answer within 3 s, in the order of their answers."""
        answered: list[RelayOffer] = []

        async def greet(offer: RelayOffer) -> None:
            with suppress(PeerloomError):
                async with self._agent(offer) as agent:
                    greeting = HandshakeRequest(caller=self._name)
                    await agent.call(agent.stub.Handshake, greeting, _GREET_S)
                    answered.append(offer)

        await asyncio.gather(*map(greet, offers))
        return answered

    def _agent(self, offer: RelayOffer) -> NodeAgentPeer:
        return self._dialer.node_agent(offer.address, offer.node_id if self._dialer.identity else "")
