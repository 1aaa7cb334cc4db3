"""Being a member: registers, keeps the lease alive, refutes suspicions, says goodbye."""

import asyncio
import random
import statistics
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass

from peerloom.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    PeerloomError,
    PermissionDeniedError,
    UnavailableError,
)
from peerloom.kit.channel import Peer
from peerloom.kit.ids import new_request_id
from peerloom.kit.logs import get_logger
from peerloom.services.node_agent.rules import FIRST_PAUSE_S, pause_s, refuted_incarnation
from peerloom.v1.common_pb2 import MachineSpeed, SlotCount
from peerloom.v1.registry_pb2 import (
    DeregisterRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    NodeSpec,
    RegisterRequest,
)

_log = get_logger()
_CALL_S = 5.0
_REACHED_S, _GOODBYE_S = 2.0, 6.0
_BEATS_MISSED = 5
_ANSWERS_KEPT = 15
# Trying again can't help against these.
_FATAL = (AlreadyExistsError, InvalidArgumentError, PermissionDeniedError)


@dataclass
class _Lease:
    lease_id: str
    interval_s: float
    incarnation: int


class Membership:
    """This node's place in the registry.

    `slots` tells the slots of now for each beat; `beat_now` is set when they changed, so that the registry
    hears of it before the next beat is due. `on_drain` is called when `draining` has changed,
    `on_artifacts` with each answer: the lease and the version of `artifact_version` that the registry knows.
    """

    def __init__(
        self, registry: Peer, node_key: str, slots: Callable[[], SlotCount], beat_now: asyncio.Event
    ) -> None:
        self._registry, self._node_key, self._slots = registry, node_key, slots
        self._lease: _Lease | None = None
        self._beat_now = beat_now
        self._leaving = False
        self._trouble = f"The registry at {registry.address} has not answered yet."
        self.node_id = ""
        self.draining = False
        self.withheld = ""
        self._speed: MachineSpeed | None = None
        self._beaten_s: deque[float] = deque()
        self._answer_times_s: deque[float] = deque(maxlen=_ANSWERS_KEPT)
        self.on_drain: Callable[[], None] = lambda: None
        self.artifact_version: Callable[[], int] = lambda: 0
        self.on_artifacts: Callable[[str, int], None] = lambda lease_id, known_version: None

    def withhold(self, reason: str) -> None:
        """From now on the beats say why the owner lends nothing; "" while the machine is lent."""
        self.withheld = reason
        self._beat_now.set()

    def tell_speed(self, speed: MachineSpeed) -> None:
        """The next beat says what was measured."""
        self._speed = speed
        self._beat_now.set()

    @property
    def heartbeat_s(self) -> float:
        """The median time of the newest answers to beats, in seconds; 0 before any."""
        return statistics.median(self._answer_times_s) if self._answer_times_s else 0.0

    async def keep(self, spec: NodeSpec) -> None:
        """Stays registered until it leaves, however often the registry goes away.

        Raises AlreadyExistsError when another node has the name, InvalidArgumentError for a bad `spec`.
        """
        while not self._leaving:
            self._lease = await self._register(spec)
            await self._hold(self._lease)
            _log.info("lease_ended", node_id=self.node_id)

    async def probe(self) -> None:
        """Raises UnavailableError while this node isn't in touch with the registry; for health."""
        if self._trouble:
            raise UnavailableError(self._trouble)

    async def leave(self, reason: str) -> None:
        """Says goodbye, if the registry can be reached within 2 s and then answers within 6 s."""
        self._leaving = True
        if self._lease is None:
            return
        request = DeregisterRequest(lease_id=self._lease.lease_id, reason=reason)
        try:
            await self._say_goodbye(request)
            _log.info("node_left", node_id=self.node_id)
        except PeerloomError as error:
            _log.warning("goodbye_failed", reason=str(error))

    async def _say_goodbye(self, request: DeregisterRequest) -> None:
        give_up_s = time.monotonic() + _REACHED_S
        while True:
            try:
                await self._registry.call("Deregister", request, _GOODBYE_S)
                return
            except UnavailableError:
                if time.monotonic() > give_up_s:
                    raise
                await asyncio.sleep(FIRST_PAUSE_S)

    async def _register(self, spec: NodeSpec) -> _Lease:
        request = RegisterRequest(spec=spec, node_key=self._node_key, request_id=new_request_id())
        failures = 0
        while True:
            try:
                answer = await self._registry.call("Register", request, _CALL_S)
                break
            except _FATAL:
                raise
            except PeerloomError as error:
                failures += 1
                await self._wait_after(failures, error.message)
        self.node_id, self._trouble = answer.node_id, ""
        _log.info("node_registered", node_id=self.node_id, name=spec.name, address=spec.address)
        return _Lease(answer.lease_id, answer.heartbeat_interval_s, answer.incarnation)

    async def _hold(self, lease: _Lease) -> None:
        """Returns when the lease has ended, or this node is leaving; a stream that breaks is opened again."""
        failures = 0
        while not self._leaving:
            try:
                async for _ in self._answers(lease):
                    failures = 0
                trouble = f"The registry at {self._registry.address} ended the stream of heartbeats."
            except NotFoundError:
                return
            except PeerloomError as error:
                trouble = error.message
            failures += 1
            await self._wait_after(failures, trouble)

    async def _answers(self, lease: _Lease) -> AsyncIterator[HeartbeatResponse]:
        limit_s = max(_CALL_S, _BEATS_MISSED * lease.interval_s)
        stream = self._registry.stream("Heartbeat", self._beats(lease))
        try:
            while (answer := await _within(limit_s, stream)) is not None:
                self._take(answer, lease)
                yield answer
        except TimeoutError:
            raise UnavailableError(
                f"The registry at {self._registry.address} answered no heartbeat for {limit_s:g} s."
            ) from None
        finally:
            await stream.aclose()

    async def _beats(self, lease: _Lease) -> AsyncIterator[HeartbeatRequest]:
        told: MachineSpeed | None = None  # of this stream: what an earlier one said may be lost
        self._beaten_s.clear()
        while True:
            self._beat_now.clear()
            speed = None if self._speed is told else self._speed
            told = self._speed
            self._beaten_s.append(time.monotonic())
            yield HeartbeatRequest(
                lease_id=lease.lease_id,
                incarnation=lease.incarnation,
                slots=self._slots(),
                withheld=self.withheld,
                artifact_version=self.artifact_version(),
                speed=speed,
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._beat_now.wait(), lease.interval_s)

    def _take(self, answer: HeartbeatResponse, lease: _Lease) -> None:
        self._trouble = ""
        if self._beaten_s:
            self._answer_times_s.append(time.monotonic() - self._beaten_s.popleft())
        self.on_artifacts(lease.lease_id, answer.artifact_version)
        incarnation = refuted_incarnation(answer.state, answer.incarnation, lease.incarnation)
        if incarnation != lease.incarnation:
            _log.info("suspicion_refuted", incarnation=incarnation)
            lease.incarnation = incarnation
            self._beat_now.set()
        if answer.draining != self.draining:
            self.draining = answer.draining
            _log.info("drain_changed", draining=self.draining)
            self.on_drain()

    async def _wait_after(self, failures: int, trouble: str) -> None:
        if not self._trouble or failures == 1:
            _log.warning("registry_lost", registry=self._registry.address, reason=trouble)
        self._trouble = trouble
        # Spread, so that all nodes don't come back in the same moment.
        await asyncio.sleep(pause_s(failures) * random.uniform(0.5, 1.0))


async def _within(limit_s: float, stream: AsyncIterator[HeartbeatResponse]) -> HeartbeatResponse | None:
    # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with the answer.
    async with asyncio.timeout(limit_s):
        return await anext(stream, None)
