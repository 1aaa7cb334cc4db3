"""Very many nodes at one registry on virtual time: half of them are lost at once, then the registry restarts.

Registry and agents are the real ones, the agents without workers, many in a process: `python -m
tests.simulation.many_nodes 10000` tells what was seen.
"""

import asyncio
import dataclasses
import shutil
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from benchmarks.registry_agent import NAME, RegistryAgent
from peerloom.services.registry.config import PRESETS
from peerloom.testing import service_wiring as wiring
from peerloom.testing.memory_replicas import dialer_of
from peerloom.testing.service_wiring import REGISTRY, VirtualClock
from peerloom.testing.simulated_processes import MemoryWorld, ProcessRun
from peerloom.testing.told_history import History
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_STATE_ALIVE,
    NODE_STATE_DEAD,
    ListNodesRequest,
    WatchNodesRequest,
)
from tests.simulation.observed import Observed
from tests.simulation.surroundings import silence, surroundings

PRESET, SEED, MACHINES = "wan", 7, 10
DOWN_S = 2.0
CALLBACKS = 100  # of a node at most, in the instant in which all come
_PAGE, _LOOK_S = 1000, 0.5
_WATCH_LIMIT_S = 60.0


@dataclass
class Seen:
    """What became of the nodes; `heard_s` is how long after the restart's kill each survivor was heard."""

    heard_s: list[float] = field(default_factory=list)
    interrupted: list[str] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    virtual_s: float = 0.0


class _Course:
    """A registry and `nodes` agents in MACHINES processes, of which the first half is lost."""

    def __init__(self, world: MemoryWorld, nodes: int) -> None:
        self.seen, self._world, self._nodes = Seen(), world, nodes
        self._agents: list[RegistryAgent] = []
        timing = dataclasses.asdict(PRESETS[PRESET])
        config = dataclasses.replace(wiring.REGISTRY_CONFIG, **timing)
        self._registry = world.add("registry", "10.0.0.1", partial(wiring.registry, config=config))
        self._registry.restart_s = DOWN_S
        each = nodes // MACHINES
        self._machines = [
            world.add(f"machine{number}", f"10.0.2.{number + 1}", partial(self._live, number * each, each))
            for number in range(MACHINES)
        ]
        self._ended = asyncio.Event()
        self._watcher = world.add("watcher", "10.0.9.1", self._watch)

    async def _live(self, first: int, count: int, run: ProcessRun) -> None:
        dialer, clock = dialer_of(run), VirtualClock(self._world.loop)
        agents = [RegistryAgent(dialer.registry(REGISTRY), n, clock) for n in range(first, first + count)]
        self._agents += agents
        await asyncio.gather(*(agent.live() for agent in agents))

    async def run(self) -> None:
        """From the first start to the verdicts on all."""
        timing = PRESETS[PRESET]
        for process in (self._registry, *self._machines):
            process.start()
        while len(self._agents) < self._nodes:
            await asyncio.sleep(_LOOK_S)
        await self._until_heard(self._agents_of(0, self._nodes), 0.0)
        lost = self._machines[: MACHINES // 2]
        for process in lost:
            process.restarts = False
            process.kill("half of all nodes are lost at once")
        await asyncio.sleep(timing.dead_after_s + timing.heartbeat_interval_s)
        self._registry.kill("the registry is killed")
        begin_s = self._world.loop.time()
        self._world.loop.later(DOWN_S, self._registry.start)
        survivors = self._agents_of(self._nodes // 2, self._nodes)
        await self._until_heard(survivors, begin_s)
        self.seen.heard_s = [agent.first_s - begin_s for agent in survivors]
        # Whoever would be declared dead by mistake is by then.
        await asyncio.sleep(timing.restart_grace_s + timing.dead_after_s + timing.heartbeat_interval_s)
        self._watcher.start()
        await self._ended.wait()
        self.seen.virtual_s = self._world.loop.time()

    def _agents_of(self, first: int, end: int) -> list[RegistryAgent]:
        return [agent for agent in self._agents if first <= agent.number < end]

    async def _until_heard(self, agents: list[RegistryAgent], since_s: float) -> None:
        for agent in agents:
            agent.since_s, agent.first_s = since_s, 0.0
        while not all(agent.first_s for agent in agents):
            await asyncio.sleep(_LOOK_S)

    async def _watch(self, run: ProcessRun) -> None:
        registry = dialer_of(run).registry(REGISTRY)
        everything = WatchNodesRequest(stop_at_present=True)
        async for event in registry.stream(registry.stub.WatchNodes, everything, _WATCH_LIMIT_S):
            if event.kind == NODE_EVENT_KIND_INTERRUPTED:
                self.seen.interrupted.append(event.node.spec.name)
        page = ListNodesRequest(page_size=_PAGE)
        while True:
            answer = await registry.call(registry.stub.ListNodes, page)
            self.seen.states |= {node.spec.name: node.state for node in answer.nodes}
            if not answer.next_page_token:
                break
            page.page_token = answer.next_page_token
        self._ended.set()
        await asyncio.Event().wait()


def run_course(nodes: int) -> Seen:
    """The whole course with so many nodes, a multiple of 10."""
    folder = Path(mkdtemp(prefix="peerloom-simulation-"))
    with silence():
        wiring.prepare_databases()
        try:
            return _seen_in(folder, nodes)
        finally:
            shutil.rmtree(folder)


def _seen_in(folder: Path, nodes: int) -> Seen:
    world = MemoryWorld.create(SEED, folder, History(tells_messages=False))
    with surroundings(world):
        world.observed = Observed(world)
        world.loop.instant_limit = max(world.loop.instant_limit, CALLBACKS * nodes)
        course = _Course(world, nodes)
        world.loop.run_until_complete(course.run())
    return course.seen


def flaws_of(seen: Seen, nodes: int) -> list[str]:
    """What isn't as it should be, in words: who was lost is dead, once, and all others live."""
    lost = [NAME.format(number) for number in range(nodes // 2)]
    expected = dict.fromkeys(lost, NODE_STATE_DEAD)
    expected |= {NAME.format(number): NODE_STATE_ALIVE for number in range(nodes // 2, nodes)}
    flaws = []
    if false := set(seen.interrupted) - set(lost):
        flaws.append(f"{len(false)} nodes that beat were declared dead, e.g. {min(false)}")
    if sorted(seen.interrupted) != lost:
        flaws.append(f"{len(seen.interrupted)} deaths were told of {len(lost)} lost nodes")
    if seen.states != expected:
        wrong = sum(seen.states.get(name) != state for name, state in expected.items())
        flaws.append(f"{wrong} nodes aren't listed as they are")
    return flaws


def main() -> None:
    nodes, begin_s = int(sys.argv[1]), time.perf_counter()
    seen = run_course(nodes)
    took_s = time.perf_counter() - begin_s
    for flaw in flaws_of(seen, nodes):
        print(f"error: {flaw}")
    print(
        f"{nodes:,} nodes, {seen.virtual_s:.0f} s of their time in {took_s:.0f} s: half were lost; then the "
        f"registry was away for {DOWN_S:g} s, and {max(seen.heard_s):.1f} s after it was killed all others "
        "had been heard"
    )


if __name__ == "__main__":
    main()
