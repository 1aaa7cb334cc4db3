"""Registers this node with the registry, again whenever its lease has ended, and says goodbye."""

import asyncio
from collections.abc import Awaitable, Callable

from peerloom.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    PeerloomError,
    PermissionDeniedError,
    UnavailableError,
)
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import RegistryPeer
from peerloom.kit.ids import new_request_id
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.membership.contact import RegistryContact
from peerloom.services.node_agent.membership.heartbeats import Heartbeats, NodeLease
from peerloom.services.node_agent.membership.node_status import NodeStatus
from peerloom.v1.registry_pb2 import DeregisterRequest, NodeSpec, RegisterRequest

_log = get_logger()
# Ten thousand that come at once take a registry a minute, and longer if any ask again meanwhile. A registry
# that is dead shows sooner, by gRPC's pings.
_CALL_S = 20.0
_REACHED_S, _GOODBYE_S, _PAUSE_S = 2.0, 6.0, 0.2
# Trying again can't help against these.
_FATAL = (AlreadyExistsError, InvalidArgumentError, PermissionDeniedError)


class Registration:
    """This node's place in the registry: `spec` says what it is, `node_key` proves who it is."""

    def __init__(
        self,
        registry: RegistryPeer,
        node_key: str,
        spec: NodeSpec,
        status: NodeStatus,
        heartbeats: Heartbeats,
        contact: RegistryContact,
        clock: Clock,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._registry, self._node_key, self._spec = registry, node_key, spec
        self._status, self._heartbeats, self._contact = status, heartbeats, contact
        self._clock, self._sleep = clock, sleep
        self._lease: NodeLease | None = None
        self._is_leaving = False
        self._refusal: PeerloomError | None = None

    @property
    def refusal(self) -> PeerloomError | None:
        """Why the registry takes this node under no circumstances: another has its name, or `spec` is bad."""
        return self._refusal

    async def keep(self) -> None:
        """Stays registered until it leaves, or is refused, however often the registry goes away."""
        while not self._is_leaving:
            try:
                self._lease = await self._register()
            except _FATAL as error:
                self._refusal = error
                return
            await self._heartbeats.hold(self._lease)
            _log.info("lease_ended", node_id=self._status.node_id)

    async def leave(self, reason: str) -> None:
        """Says goodbye, if the registry can be reached within 2 s and then answers within 6 s."""
        self._is_leaving = True
        if self._lease is None:
            return
        try:
            await self._say_goodbye(DeregisterRequest(lease_id=self._lease.lease_id, reason=reason))
            _log.info("node_left", node_id=self._status.node_id)
        except PeerloomError as error:
            _log.warning("goodbye_failed", reason=str(error))

    async def _say_goodbye(self, request: DeregisterRequest) -> None:
        give_up_s = self._clock.monotonic_s() + _REACHED_S
        while True:
            try:
                await self._registry.call(self._registry.stub.Deregister, request, _GOODBYE_S)
                return
            except UnavailableError:
                if self._clock.monotonic_s() > give_up_s:
                    raise
                await self._sleep(_PAUSE_S)

    async def _register(self) -> NodeLease:
        speed, spec = self._status.speed, NodeSpec()
        spec.CopyFrom(self._spec)
        spec.speed.CopyFrom(speed)
        spec.address, spec.via = self._status.address or spec.address, self._status.via
        request = RegisterRequest(spec=spec, node_key=self._node_key, request_id=new_request_id())
        while True:
            try:
                answer = await self._registry.call(
                    self._registry.stub.Register, request, self._contact.patience_s(_CALL_S)
                )
                break
            except _FATAL:
                raise
            except PeerloomError as error:
                await self._contact.wait_after(error.message)
        self._contact.note_answer()
        self._status.note_registered(answer.node_id)
        _log.info("node_registered", node_id=answer.node_id, name=spec.name, address=spec.address)
        return NodeLease(answer.lease_id, answer.heartbeat_interval_s, answer.incarnation, speed)
