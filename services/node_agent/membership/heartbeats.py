"""Keeps one lease alive with a stream of heartbeats, and refutes suspicions.

A stream that breaks is opened again; each answer tells what the registry believes of this node, and which of
its artifacts it knows.
"""

import asyncio
import statistics
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from peerloom.errors import NotFoundError, PeerloomError, PermissionDeniedError, UnavailableError
from peerloom.kit.backoff import pauses
from peerloom.kit.clock import Clock
from peerloom.kit.dialing import RegistryPeer
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.membership.contact import RegistryContact
from peerloom.services.node_agent.membership.node_status import NodeStatus
from peerloom.v1.common_pb2 import MachineSpeed, SlotCount
from peerloom.v1.registry_pb2 import NODE_STATE_SUSPECT, HeartbeatRequest, HeartbeatResponse, NodeState

_log = get_logger()
_ANSWER_LIMIT_S = 5.0
_BEATS_MISSED = 5
_ANSWERS_KEPT = 15


def refuted_incarnation(state: "NodeState.ValueType", believed: int, own: int) -> int:
    """The incarnation to go on with: above the believed one if it is suspected, else our `own`."""
    return believed + 1 if state == NODE_STATE_SUSPECT and believed >= own else own


@dataclass
class NodeLease:
    """What the registry gave: the lease, how often to send a heartbeat, and this node's incarnation.

    `speed` is what was said of the node when it registered.
    """

    lease_id: str
    interval_s: float
    incarnation: int
    speed: MachineSpeed


class ArtifactVersions(Protocol):
    """Which version of this node's artifacts the heartbeats speak of."""

    @property
    def version(self) -> int:
        """The number of the newest change."""

    def hear(self, lease_id: str, known_version: int) -> None:
        """A heartbeat was answered: the registry knows this version."""


class Heartbeats:
    """Tells of this node: `slots` counts its slots of now, `status` and `artifacts` say the rest.

    `chance` (0 to 1) is the part of the interval after which a stream's second heartbeat comes.
    """

    def __init__(
        self,
        registry: RegistryPeer,
        status: NodeStatus,
        slots: Callable[[], SlotCount],
        artifacts: ArtifactVersions,
        contact: RegistryContact,
        clock: Clock,
        chance: Callable[[], float] = pauses.random,
    ) -> None:
        self._registry, self._status, self._slots = registry, status, slots
        self._artifacts, self._contact, self._clock = artifacts, contact, clock
        self._chance = chance
        self._sent_s: deque[float] = deque()
        self._answer_times_s: deque[float] = deque(maxlen=_ANSWERS_KEPT)

    @property
    def median_answer_s(self) -> float:
        """The median time of the newest answers, in seconds; 0 before any."""
        return statistics.median(self._answer_times_s) if self._answer_times_s else 0.0

    async def hold(self, lease: NodeLease) -> None:
        """Returns when the lease has ended; a stream that breaks is opened again."""
        while True:
            try:
                async for _ in self._answers(lease):
                    self._contact.note_answer()
                trouble = f"The registry at {self._registry.address} ended the stream of heartbeats."
            except (NotFoundError, PermissionDeniedError):
                return  # one that was turned out is told so when it registers again
            except PeerloomError as error:
                trouble = error.message
            await self._contact.wait_after(trouble)

    async def _answers(self, lease: NodeLease) -> AsyncIterator[HeartbeatResponse]:
        limit_s = max(_ANSWER_LIMIT_S, _BEATS_MISSED * lease.interval_s)
        stream = self._registry.converse(self._registry.stub.Heartbeat, self._requests(lease))
        try:
            while (answer := await _within(self._contact.patience_s(limit_s), stream)) is not None:
                self._take(answer, lease)
                yield answer
        except TimeoutError:
            waited_s = self._contact.patience_s(limit_s)
            raise UnavailableError(
                f"The registry at {self._registry.address} answered no heartbeat for {waited_s:g} s."
            ) from None
        finally:
            await stream.aclose()

    async def _requests(self, lease: NodeLease) -> AsyncIterator[HeartbeatRequest]:
        told, told_load = lease.speed, None  # in this stream: what an earlier one said may be lost
        due = self._status.beat_due
        self._sent_s.clear()
        # Nodes that came at once, as after a restart of the registry, would else beat at once for ever.
        pause_s = lease.interval_s * self._chance()
        while True:
            due.clear()
            speed = None if self._status.speed is told else self._status.speed
            load = None if self._status.load is told_load else self._status.load
            told, told_load = self._status.speed, self._status.load
            self._sent_s.append(self._clock.monotonic_s())
            yield HeartbeatRequest(
                lease_id=lease.lease_id,
                incarnation=lease.incarnation,
                slots=self._slots(),
                withheld=self._status.withheld,
                artifact_version=self._artifacts.version,
                speed=speed,
                address=self._status.address,
                via=self._status.via,
                load=load,
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(due.wait(), pause_s)
            pause_s = lease.interval_s

    def _take(self, answer: HeartbeatResponse, lease: NodeLease) -> None:
        if self._sent_s:
            self._answer_times_s.append(self._clock.monotonic_s() - self._sent_s.popleft())
        self._artifacts.hear(lease.lease_id, answer.artifact_version)
        incarnation = refuted_incarnation(answer.state, answer.incarnation, lease.incarnation)
        if incarnation != lease.incarnation:
            _log.info("suspicion_refuted", incarnation=incarnation)
            lease.incarnation = incarnation
            self._status.beat_due.set()
        if answer.draining != self._status.is_draining:
            _log.info("drain_changed", draining=answer.draining)
            self._status.note_draining(answer.draining)


async def _within(limit_s: float, stream: AsyncIterator[HeartbeatResponse]) -> HeartbeatResponse | None:
    # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with the answer.
    async with asyncio.timeout(limit_s):
        return await anext(stream, None)
