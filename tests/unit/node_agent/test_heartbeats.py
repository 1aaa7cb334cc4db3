"""Heartbeats with a scripted registry: what each says, what its answer changes, and how long answers take."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from agent_parts import LIMIT_S, ScriptedRegistry, no_wait

from peerloom.errors import NotFoundError, UnavailableError
from peerloom.kit.clock import ManualClock
from peerloom.services.node_agent.membership.contact import RegistryContact
from peerloom.services.node_agent.membership.heartbeats import Heartbeats, NodeLease, refuted_incarnation
from peerloom.services.node_agent.membership.node_status import NodeStatus
from peerloom.v1.common_pb2 import MachineSpeed, SlotCount
from peerloom.v1.registry_pb2 import (
    NODE_STATE_ALIVE,
    NODE_STATE_SUSPECT,
    HeartbeatRequest,
    HeartbeatResponse,
    MachineLoad,
)

FIRST_SPEED = MachineSpeed(matmul_gflops=1.0)


@dataclass
class Versions:
    """The artifacts' side of a heartbeat."""

    version: int = 7
    heard: list[tuple[str, int]] = field(default_factory=list)

    def hear(self, lease_id: str, known_version: int) -> None:
        self.heard.append((lease_id, known_version))


Answer = Callable[[HeartbeatRequest], Awaitable[HeartbeatResponse]]


class Bench:
    """Heartbeats whose registry answers each with `answer`; they are an hour apart but for changes."""

    def __init__(self, answer: Answer) -> None:
        self.clock, self.status, self.versions = ManualClock(), NodeStatus(), Versions()
        self.requests: list[HeartbeatRequest] = []
        self.draws = 0
        self.contact = RegistryContact("10.0.0.1:7400", no_wait)
        self.lease = NodeLease("lease-1", 3600.0, 4, FIRST_SPEED)
        self.status.note_speed(FIRST_SPEED)
        self._answer = answer
        registry: Any = ScriptedRegistry(lambda method, request: None, self._beats)
        self.heartbeats = Heartbeats(
            registry,
            self.status,
            lambda: SlotCount(total=3, free=2),
            self.versions,
            self.contact,
            self.clock,
            self._draw,
        )

    def _draw(self) -> float:
        self.draws += 1
        return 1.0

    async def _beats(self, requests: AsyncIterator[HeartbeatRequest]) -> AsyncIterator[HeartbeatResponse]:
        async for request in requests:
            self.requests.append(request)
            yield await self._answer(request)

    async def hold(self) -> None:
        """Holds the lease until the registry says that it has ended."""
        async with asyncio.timeout(LIMIT_S):
            await self.heartbeats.hold(self.lease)


def ended() -> NotFoundError:
    return NotFoundError("the lease has ended", reason="LEASE_NOT_FOUND")


async def test_a_heartbeat_says_what_is_so_and_its_answer_is_passed_on() -> None:
    async def answer(request: HeartbeatRequest) -> HeartbeatResponse:
        if len(bench.requests) == 2:
            raise ended()
        bench.status.note_withheld("it is noon")
        return HeartbeatResponse(state=NODE_STATE_ALIVE, incarnation=4, artifact_version=6)

    bench = Bench(answer)
    await bench.hold()
    assert bench.requests == [
        HeartbeatRequest(
            lease_id="lease-1", incarnation=4, slots=SlotCount(total=3, free=2), artifact_version=7
        ),
        HeartbeatRequest(
            lease_id="lease-1",
            incarnation=4,
            slots=SlotCount(total=3, free=2),
            artifact_version=7,
            withheld="it is noon",
        ),
    ]
    assert bench.versions.heard == [("lease-1", 6)]
    await bench.contact.probe()


async def test_a_speed_is_said_when_it_is_new_and_again_on_each_new_stream() -> None:
    measured = MachineSpeed(matmul_gflops=2.0)

    async def answer(request: HeartbeatRequest) -> HeartbeatResponse:
        match len(bench.requests):
            case 1:
                bench.status.note_speed(measured)
            case 2:
                bench.status.note_withheld("")  # another heartbeat, with nothing new
            case 3:
                raise UnavailableError("the registry died")
            case 4:
                raise ended()
        return HeartbeatResponse(state=NODE_STATE_ALIVE, incarnation=4)

    bench = Bench(answer)
    await bench.hold()
    said = [request.speed.matmul_gflops for request in bench.requests]
    assert said == [0.0, 2.0, 0.0, 2.0]


async def test_a_load_waits_for_the_next_heartbeat_and_is_said_once_on_each_stream() -> None:
    load = MachineLoad(cpu_use=0.5, cores=2)

    async def answer(request: HeartbeatRequest) -> HeartbeatResponse:
        match len(bench.requests):
            case 1:
                bench.status.beat_due.clear()
                bench.status.note_load(load)
                assert not bench.status.beat_due.is_set()
                bench.status.note_withheld("")  # now another heartbeat is due
            case 2:
                bench.status.note_withheld("")
            case 3:
                raise UnavailableError("the registry died")
            case 4:
                raise ended()
        return HeartbeatResponse(state=NODE_STATE_ALIVE, incarnation=4)

    bench = Bench(answer)
    await bench.hold()
    said = [request.load.cpu_use if request.HasField("load") else None for request in bench.requests]
    assert said == [None, 0.5, None, 0.5]


async def test_a_suspicion_is_refuted_at_once_with_a_higher_incarnation() -> None:
    async def answer(request: HeartbeatRequest) -> HeartbeatResponse:
        if len(bench.requests) == 2:
            raise ended()
        return HeartbeatResponse(state=NODE_STATE_SUSPECT, incarnation=6)

    bench = Bench(answer)
    await bench.hold()
    assert [request.incarnation for request in bench.requests] == [4, 7]


async def test_a_drain_wakes_the_owners_policy_once() -> None:
    async def answer(request: HeartbeatRequest) -> HeartbeatResponse:
        match len(bench.requests):
            case 1:
                assert not bench.status.policy_due.is_set()
            case 2:
                assert bench.status.policy_due.is_set()
                assert bench.status.is_draining
                bench.status.policy_due.clear()
            case 3:
                assert not bench.status.policy_due.is_set()
                raise ended()
        bench.status.beat_due.set()
        return HeartbeatResponse(state=NODE_STATE_ALIVE, incarnation=4, draining=True)

    bench = Bench(answer)
    await bench.hold()
    assert bench.status.is_draining


async def test_the_median_time_of_the_answers_is_measured_by_the_clock() -> None:
    times_s = [0.5, 0.1, 0.3]

    async def answer(request: HeartbeatRequest) -> HeartbeatResponse:
        if not times_s:
            raise ended()
        bench.clock.advance(times_s.pop(0))
        bench.status.beat_due.set()
        return HeartbeatResponse(state=NODE_STATE_ALIVE, incarnation=4)

    bench = Bench(answer)
    assert bench.heartbeats.median_answer_s == 0.0
    await bench.hold()
    assert bench.heartbeats.median_answer_s == pytest.approx(0.3)


async def test_only_a_streams_second_heartbeat_comes_by_chance_so_that_those_who_came_at_once_spread() -> (
    None
):
    async def answer(request: HeartbeatRequest) -> HeartbeatResponse:
        drawn.append(bench.draws)
        match len(bench.requests):
            case 3:
                raise UnavailableError("the registry died")
            case 6:
                raise ended()
        return HeartbeatResponse(state=NODE_STATE_ALIVE, incarnation=4)

    bench, drawn = Bench(answer), list[int]()
    bench.lease.interval_s = 1e-4
    await bench.hold()
    assert drawn == [1, 1, 1, 2, 2, 2], "one draw a stream, and two streams of three heartbeats each"


async def test_health_says_why_the_registry_is_out_of_touch() -> None:
    async def answer(request: HeartbeatRequest) -> HeartbeatResponse:
        if len(bench.requests) == 1:
            raise UnavailableError("the registry died")
        with pytest.raises(UnavailableError, match="the registry died"):
            await bench.contact.probe()
        raise ended()

    bench = Bench(answer)
    with pytest.raises(UnavailableError, match="has not answered yet"):
        await bench.contact.probe()
    await bench.hold()
    assert len(bench.requests) == 2


@pytest.mark.parametrize(
    ("state", "believed", "own", "expected"),
    [
        (NODE_STATE_ALIVE, 5, 5, 5),
        (NODE_STATE_SUSPECT, 5, 5, 6),
        (NODE_STATE_SUSPECT, 7, 5, 8),
        (NODE_STATE_SUSPECT, 4, 5, 5),  # refuted already; the answer was under way
    ],
)
def test_a_suspicion_is_refuted_once(state: int, believed: int, own: int, expected: int) -> None:
    assert refuted_incarnation(state, believed, own) == expected  # type: ignore[arg-type]  # the enum's number
