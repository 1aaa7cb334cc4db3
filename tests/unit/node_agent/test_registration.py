"""Registration with a scripted registry: again after each lease, refused for good, and the goodbye."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agent_parts import LIMIT_S, ScriptedRegistry, no_wait

from peerloom.errors import AlreadyExistsError, NotFoundError, UnavailableError
from peerloom.kit.clock import ManualClock
from peerloom.services.node_agent.membership.contact import RegistryContact
from peerloom.services.node_agent.membership.heartbeats import Heartbeats
from peerloom.services.node_agent.membership.node_status import NodeStatus
from peerloom.services.node_agent.membership.registration import Registration
from peerloom.v1.common_pb2 import MachineSpeed, SlotCount
from peerloom.v1.registry_pb2 import NodeSpec, RegisterResponse

SPEC = NodeSpec(name="alpha", address="10.0.0.2:1", slots=3)


class NoArtifacts:
    """The artifacts' side of a heartbeat."""

    version = 0

    def hear(self, lease_id: str, known_version: int) -> None:
        pass


class Bench:
    """A registry that answers with these, one after the other; each lease ends at its first heartbeat."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.registry = ScriptedRegistry(lambda method, request: self._answer(), self._end_lease)
        self.clock, self.status = ManualClock(), NodeStatus()
        self.status.note_speed(MachineSpeed(matmul_gflops=1.5))
        contact, peer = RegistryContact("10.0.0.1:7400", no_wait), self._peer()
        heartbeats = Heartbeats(peer, self.status, SlotCount, NoArtifacts(), contact, self.clock, lambda: 1.0)
        self.registration = Registration(
            peer, "key", SPEC, self.status, heartbeats, contact, self.clock, no_wait
        )

    def _answer(self) -> object:
        answer = self._answers.pop(0)
        return answer() if callable(answer) else answer

    def _peer(self) -> Any:
        return self.registry

    async def _end_lease(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        await anext(requests)
        raise NotFoundError("the lease has ended", reason="LEASE_NOT_FOUND")
        yield

    @property
    def called(self) -> list[str]:
        return [method for method, _ in self.registry.requests]


def accepted(node_id: str = "node-1") -> RegisterResponse:
    return RegisterResponse(node_id=node_id, lease_id=f"lease-of-{node_id}", heartbeat_interval_s=3600.0)


REFUSED = AlreadyExistsError("another node is called alpha", reason="NAME_TAKEN")


async def keep(bench: Bench) -> None:
    async with asyncio.timeout(LIMIT_S):
        await bench.registration.keep()


async def test_a_node_registers_with_its_speed_again_after_each_lease_until_it_is_refused() -> None:
    bench = Bench(accepted("node-1"), accepted("node-2"), REFUSED)
    await keep(bench)
    assert bench.called == ["Register"] * 3
    assert bench.registration.refusal is REFUSED
    assert bench.status.node_id == "node-2"
    requests = [request for _, request in bench.registry.requests]
    assert {request.node_key for request in requests} == {"key"}
    assert len({request.request_id for request in requests}) == 3
    assert requests[0].spec.speed.matmul_gflops == 1.5
    assert requests[0].spec.address == "10.0.0.2:1"


async def test_a_registry_that_is_away_is_asked_again_with_the_same_request() -> None:
    bench = Bench(UnavailableError("away"), accepted(), REFUSED)
    await keep(bench)
    requests = [request.request_id for _, request in bench.registry.requests]
    assert requests[0] == requests[1] != requests[2]


async def test_a_node_that_never_registered_needs_no_goodbye() -> None:
    bench = Bench()
    await bench.registration.leave("stopped")
    assert bench.called == []


async def test_a_goodbye_names_the_lease_and_nothing_registers_after_it() -> None:
    bench = Bench(accepted(), REFUSED, None)
    await keep(bench)
    await bench.registration.leave("stopped")
    method, request = bench.registry.requests[-1]
    assert (method, request.lease_id, request.reason) == ("Deregister", "lease-of-node-1", "stopped")
    await keep(bench)
    assert bench.called == ["Register", "Register", "Deregister"]


async def test_a_goodbye_gives_up_when_the_registry_is_not_reached_in_time() -> None:
    """Each try takes 1.5 s by the clock: after the second the 2 s are over."""

    def away() -> UnavailableError:
        bench.clock.advance(1.5)
        return UnavailableError("away")

    bench = Bench(accepted(), REFUSED, away, away)
    await keep(bench)
    await bench.registration.leave("stopped")
    assert bench.called == ["Register", "Register", "Deregister", "Deregister"]


@pytest.mark.parametrize("reason", ["", "it is noon"])
async def test_each_change_of_the_status_asks_for_a_heartbeat(reason: str) -> None:
    status = NodeStatus()
    status.note_withheld(reason)
    assert status.beat_due.is_set()
    assert not status.policy_due.is_set()
