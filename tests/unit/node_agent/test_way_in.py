"""How a node finds out whether others reach it; tunnels themselves are tested with sockets."""

import asyncio
from typing import Any

import pytest
from agent_parts import LIMIT_S, ScriptedRegistry

from peerloom.errors import UnavailableError
from peerloom.kit.dialing import Dialer
from peerloom.services.node_agent.membership.node_status import NodeStatus
from peerloom.services.node_agent.tunnels.way_in import CHECK_INTERVAL_S, WayIn
from peerloom.v1.registry_pb2 import CheckReachabilityResponse

REACHED = CheckReachabilityResponse(reachable=True)
NOT_REACHED = CheckReachabilityResponse(reason="nobody answers")
AWAY = UnavailableError("the registry is away")


class Ended(Exception):
    """The script has no more answers."""


class Bench:
    """A way in whose registry gives these answers; `paused_s` are its pauses until they end."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.status, self.paused_s = NodeStatus(), list[float]()
        registry: Any = ScriptedRegistry(lambda method, request: self._answers.pop(0))
        self.registry = registry
        direct = "192.168.7.2:7500"
        self.way_in = WayIn("ada", direct, "127.0.0.1", registry, Dialer(), self.status, None, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.paused_s.append(seconds)
        if not self._answers:
            raise Ended

    async def keep(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(Ended):
                await self.way_in.keep()


async def test_a_node_that_is_reached_says_its_own_address_and_looks_again_later() -> None:
    bench = Bench(REACHED)
    assert not bench.way_in.settled.is_set()
    await bench.keep()
    assert bench.way_in.settled.is_set()
    assert (bench.status.address, bench.status.via) == ("192.168.7.2:7500", "")
    assert bench.paused_s == [CHECK_INTERVAL_S]
    assert await bench.way_in.reached_at(9) == "192.168.7.2:9"
    [(method, request)] = bench.registry.requests
    assert (method, request.name, request.address) == ("CheckReachability", "ada", "192.168.7.2:7500")


async def test_that_it_is_not_reached_is_looked_at_twice() -> None:
    """A registry or a machine that was busy for a moment moves nobody behind a relay."""
    bench = Bench(NOT_REACHED, REACHED)
    await bench.keep()
    assert bench.paused_s == [CHECK_INTERVAL_S]


@pytest.mark.parametrize("answers", [(NOT_REACHED, NOT_REACHED), (AWAY,)])
async def test_without_a_relay_or_a_registry_it_goes_on_by_its_own_address_and_looks_again_soon(
    answers: tuple[object, ...],
) -> None:
    bench = Bench(*answers, REACHED)
    await bench.keep()
    assert bench.way_in.settled.is_set()
    assert (bench.status.address, bench.status.via) == ("192.168.7.2:7500", "")
    assert bench.paused_s[0] <= 0.5
    assert bench.paused_s[1] == CHECK_INTERVAL_S


async def test_while_its_tunnel_is_made_anew_nobody_is_told_an_address_that_leads_nowhere() -> None:
    bench = Bench(REACHED)
    bench.status.note_way_in("198.51.100.1:7501", "open")
    with pytest.raises(UnavailableError, match="made anew"):
        await bench.way_in.reached_at(9)
