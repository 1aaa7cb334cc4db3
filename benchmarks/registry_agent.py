"""A node as its registry knows it: the agent's own registration, heartbeats and advertised artifacts."""

import asyncio

from peerloom.kit.clock import Clock
from peerloom.kit.dialing import RegistryPeer
from peerloom.services.node_agent.membership.advertising import Advertiser, PendingChanges
from peerloom.services.node_agent.membership.contact import RegistryContact
from peerloom.services.node_agent.membership.heartbeats import Heartbeats
from peerloom.services.node_agent.membership.node_status import NodeStatus
from peerloom.services.node_agent.membership.registration import Registration
from peerloom.v1.common_pb2 import SlotCount
from peerloom.v1.registry_pb2 import NodeSpec

NAME = "node-{:06}"
KEY = "key-of-node-{:06}"
SLOTS = 1
_DIGESTS = ("0" * 64,)


class RegistryAgent:
    """One node. `beats` are the seconds to each answer.

    `first_s` is when the first answer to a beat that was sent after `since_s` came, 0 before.
    """

    def __init__(self, registry: RegistryPeer, number: int, clock: Clock) -> None:
        status, contact, self._clock = NodeStatus(), RegistryContact(registry.address), clock
        spec = NodeSpec(name=NAME.format(number), address=f"10.0.0.1:{1024 + number % 60_000}", slots=SLOTS)
        slots = SlotCount(total=SLOTS, free=SLOTS)
        self.number = number
        self._pending = PendingChanges()
        self._advertiser = Advertiser(registry, lambda: _DIGESTS, self._pending)
        heartbeats = Heartbeats(registry, status, lambda: slots, self, contact, clock)
        self._registration = Registration(
            registry, KEY.format(number), spec, status, heartbeats, contact, clock
        )
        self._sent_s = 0.0
        self.beats: list[float] = []
        self.since_s = self.first_s = 0.0

    @property
    def version(self) -> int:
        """Asked for with each beat that is sent: of artifacts the advertiser's."""
        self._sent_s = self._clock.monotonic_s()
        return self._advertiser.version

    def hear(self, lease_id: str, known_version: int) -> None:
        """A beat was answered; there is never more than one under way here."""
        now_s = self._clock.monotonic_s()
        self.beats.append(now_s - self._sent_s)
        if not self.first_s and self._sent_s > self.since_s:
            self.first_s = now_s
        self._advertiser.hear(lease_id, known_version)

    async def live(self) -> None:
        """Registers, and beats until cancelled."""
        advertising = asyncio.create_task(self._advertiser.keep())
        try:
            await self._registration.keep()
        finally:
            advertising.cancel()
        if self._registration.refusal is not None:
            raise self._registration.refusal
