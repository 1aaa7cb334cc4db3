"""Many agents in one process: `python -m benchmarks.agent_crowd PORT FIRST COUNT`, led by its standard input.

Each is what an agent is towards the registry (its registration, stream of heartbeats, backoff, advertised
artifacts) with no worker and no server. PORT is the registry's, on this machine: each agent dials another
address of loopback, and so has a connection of its own. Real agents aren't on their registry's machine: here
they give way to it. A line on standard input is a command, which one line of JSON on standard output answers:

    join                    begins all agents
    heard SINCE LIMIT_S     once each has an answer to a beat sent after SINCE (monotonic seconds of this
                            machine), or after LIMIT_S: when each had its first, in seconds after SINCE
    beats SECONDS           in seconds, how long the answers took that came in that time
"""

import asyncio
import json
import os
import sys
import time
from contextlib import suppress

from benchmarks.registry_agent import RegistryAgent
from peerloom.kit.clock import SystemClock
from peerloom.kit.dialing import Dialer
from peerloom.kit.logs import configure_logs
from peerloom.kit.server_limits import raise_descriptor_limit

_LOOK_S = 0.1
_GIVE_WAY = 10  # more of niceness


class _Crowd:
    """The agents FIRST to FIRST + COUNT - 1."""

    def __init__(self, port: str, first: int, count: int) -> None:
        numbers, dialer, clock = range(first, first + count), Dialer(), SystemClock()
        self._agents = [RegistryAgent(dialer.registry(_own_address(n, port)), n, clock) for n in numbers]
        self._living: list[asyncio.Task[None]] = []

    def join(self) -> None:
        """Begins all at once."""
        self._living = [asyncio.create_task(agent.live()) for agent in self._agents]

    async def heard(self, since_s: float, limit_s: float) -> list[float]:
        """See the module."""
        for agent in self._agents:
            agent.since_s, agent.first_s = since_s, 0.0
        until_s = time.monotonic() + limit_s
        while not all(agent.first_s for agent in self._agents) and time.monotonic() < until_s:
            self._check_lives()
            await asyncio.sleep(_LOOK_S)
        return [round(agent.first_s - since_s, 4) for agent in self._agents if agent.first_s]

    async def beats(self, seconds: float) -> list[float]:
        """See the module."""
        for agent in self._agents:
            agent.beats.clear()
        await asyncio.sleep(seconds)
        self._check_lives()
        return [round(one, 6) for agent in self._agents for one in agent.beats]

    def _check_lives(self) -> None:
        for task in self._living:
            if task.done():
                task.result()


def _own_address(number: int, port: str) -> str:
    return f"127.{1 + number // 65_536}.{number // 256 % 256}.{number % 256}:{port}"


async def main() -> None:
    port, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    crowd = _Crowd(port, first, count)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        match line.split():
            case ["join"]:
                crowd.join()
                answer: object = {}
            case ["heard", since_s, limit_s]:
                answer = await crowd.heard(float(since_s), float(limit_s))
            case ["beats", seconds]:
                answer = await crowd.beats(float(seconds))
            case other:
                raise SystemExit(f"error: {other} is no command")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    raise_descriptor_limit()
    os.nice(_GIVE_WAY)
    configure_logs("crowd", "error")
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
