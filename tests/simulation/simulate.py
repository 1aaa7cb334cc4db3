"""One history: a system, its users and its faults, all from one seed; then what must hold."""

import asyncio
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from peerloom.testing import service_wiring as wiring
from peerloom.testing.simulated_processes import Disk, MemoryWorld, ProcessRun
from peerloom.testing.told_history import History
from peerloom.testing.training_script import Scripts
from peerloom.testing.virtual_loop import StuckError
from peerloom.v1.registry_pb2 import Node
from peerloom.v1.trainer_pb2 import Job, JobSpec
from tests.simulation.clients import User, Watched
from tests.simulation.faults import Fault, Mischief, faults_of
from tests.simulation.fingerprints import EVALUATOR_DIES, FINGERPRINTS
from tests.simulation.observed import Observed
from tests.simulation.promises import check, settled, states
from tests.simulation.surroundings import silence, surroundings
from tests.simulation.takeovers import DATABASE_HOST, SERVICES, standby_of
from tests.simulation.wall_clocks import draw_ahead_s

LIMIT_S = 240.0  # a job that takes longer hangs
SETTLE_S = 40.0  # until all nodes are back, all slots free and all evidence told
_MEMORY = Path("/dev/shm")
ADDRESSES = (wiring.REGISTRY, wiring.SELECTOR, wiring.TRAINER)
STANDBY_CHANCE = 0.25  # histories with standbys take longer


@dataclass(frozen=True)
class Plan:
    """What a seed says of the system and what it is asked to do."""

    nodes: tuple[int, ...]  # slots of each
    jobs: tuple[JobSpec, ...]
    submit_s: tuple[float, ...]
    standbys: tuple[str, ...]  # the services that have a second process, on one database
    late_s: tuple[float, ...]  # when each node begins; 0: with the rest

    @property
    def registries(self) -> str:
        """The registry's addresses, as nodes and services are given them."""
        return wiring.REGISTRIES if "registry" in self.standbys else wiring.REGISTRY

    @property
    def names(self) -> list[str]:
        """The nodes' names."""
        return [f"node{number}" for number in range(len(self.nodes))]


@dataclass
class Outcome:
    """How a history went."""

    seed: int
    faults: tuple[Fault, ...]
    history: History
    broken: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    end_s: float = 0.0
    callbacks: int = 0


def plan_of(seed: int) -> Plan:
    """The same for the same seed."""
    chance = random.Random(f"{seed}/plan")
    nodes = tuple(chance.choice((1, 1, 2)) for _ in range(chance.randint(2, 4)))
    jobs = tuple(_spec(chance, number) for number in range(chance.choice((1, 1, 2))))
    submit_s = tuple(chance.uniform(1.0, 4.0) for _ in jobs)
    standbys = _standbys(random.Random(f"{seed}/standbys")) if chance.random() < STANDBY_CHANCE else ()
    # The first is there from the beginning; registrations while others work meet more of what goes wrong.
    late_s = tuple(chance.choice((0.0, chance.uniform(3.0, 12.0))) for _ in nodes[1:])
    return Plan(nodes, jobs, submit_s, standbys, (0.0, *late_s))


def _standbys(chance: random.Random) -> tuple[str, ...]:
    return SERVICES if chance.random() < 0.5 else (chance.choice(SERVICES),)


def _spec(chance: random.Random, number: int) -> JobSpec:
    return JobSpec(
        task="digits",
        epochs=chance.choice((1, 2)),
        batch_size=chance.choice((8, 12, 16)),
        request_budget=chance.choice((2, 3, 4)),
        min_workers=chance.choice((1, 1, 2)),
        max_workers=chance.choice((2, 3, 4)),
        name=f"job{number}",
    )


class Simulation:
    """A world with a system in it."""

    def __init__(self, world: MemoryWorld, plan: Plan, faults: Sequence[Fault]) -> None:
        self.world, self.plan = world, plan
        world.scripts, world.evaluator_dies = Scripts(FINGERPRINTS), EVALUATOR_DIES
        world.observed = Observed(world)
        world.observed.watches_leases = bool(plan.standbys)
        self._add_coordinators()
        for number, (name, slots) in enumerate(zip(plan.names, plan.nodes, strict=True)):
            agent = partial(wiring.node_agent, slots=slots, registry=plan.registries)
            world.add(name, f"10.0.1.{number + 1}", agent)
        self.jobs: list[Job | None] = [None] * len(plan.jobs)
        self._ended = [asyncio.Event() for _ in plan.jobs]
        self.job_watches = [Watched() for _ in plan.jobs]
        self.node_watch = Watched()
        self.nodes: Sequence[Node] = ()  # as they are at the end, by who was asked at `looked_s`
        self.looked_s = 0.0
        self._by_user: tuple[ProcessRun, User] | None = None
        world.add("user", "10.0.9.1", self._user)
        hosts = sorted({DATABASE_HOST, *(process.host for process in world.processes.values())})
        world.ahead_s = draw_ahead_s(world.seed, hosts)
        self._chance = random.Random(f"{world.seed}/user")
        self._asked: asyncio.Queue[Fault] = asyncio.Queue()
        self._mischief = Mischief(world, faults, self._asked.put_nowait)

    def _add_coordinators(self) -> None:
        world, plan = self.world, self.plan
        others = (
            partial(wiring.selector, registry=plan.registries),
            partial(wiring.trainer, registry=plan.registries),
        )
        for name, address, main in zip(SERVICES, ADDRESSES, (wiring.registry, *others), strict=True):
            host_of_database = DATABASE_HOST if name in plan.standbys else ""
            disk = Disk(world.folder / name, host_of_database)
            world.add(name, address.partition(":")[0], main, disk)
            if name in plan.standbys:
                listen = wiring.STANDBYS[name]
                host = listen.partition(":")[0]
                world.add(standby_of(name), host, partial(main, listen=listen), disk)

    async def run(self) -> None:
        """Starts all; returns when the jobs have ended and all is quiet, or after the limits."""
        loop, observed = self.world.loop, self.world.observed
        late_s = dict(zip(self.plan.names, self.plan.late_s, strict=True))
        for name, process in list(self.world.processes.items()):
            loop.later(late_s.get(name, 0.0) + self.world.chance.uniform(0.0, 0.3), process.start)
        try:
            async with asyncio.timeout(LIMIT_S):
                for ended in self._ended:
                    await ended.wait()
                await asyncio.sleep(max(0.0, self._mischief.end_s - loop.time()) + 1.0)
        except TimeoutError:
            observed.break_promise(f"a job has not ended after {LIMIT_S:g} s")
            return
        unsettled = list(settled(self))
        end_s = loop.time() + SETTLE_S
        while unsettled and loop.time() < end_s:
            await asyncio.sleep(0.5)  # of the loop's virtual time
            unsettled = list(settled(self))
        for text in unsettled:
            observed.break_promise(f"{SETTLE_S:g} s after all: {text}")
        if not unsettled:
            await self._last_look()

    async def _last_look(self) -> None:
        assert self._by_user is not None, "the user is never killed"
        run, user = self._by_user
        self.looked_s = self.world.loop.time()
        self.nodes = await run.spawn(user.nodes())

    async def _user(self, run: ProcessRun) -> None:
        user = User(run, self._chance, self.plan.registries, is_told_of_takeovers=bool(self.plan.standbys))
        self._by_user = (run, user)
        run.spawn(user.watch_nodes(self.node_watch))
        run.spawn(self._serve_faults(run, user))
        await asyncio.gather(*(self._job(user, number) for number in range(len(self.plan.jobs))))
        await asyncio.Event().wait()

    async def _job(self, user: User, number: int) -> None:
        await asyncio.sleep(self.plan.submit_s[number])
        is_repeated = self._chance.random() < 0.3
        job = self.jobs[number] = await user.submit(self.plan.jobs[number], is_repeated)
        await user.watch_job(job.job_id, self.job_watches[number])
        self._ended[number].set()

    async def _serve_faults(self, run: ProcessRun, user: User) -> None:
        while True:
            fault = await self._asked.get()
            if fault.kind == "cancel":
                for job in [job for job in self.jobs if job is not None][:1]:
                    run.spawn(user.cancel(job.job_id))
            else:
                run.spawn(self._drain(user, fault))

    async def _drain(self, user: User, fault: Fault) -> None:
        await user.drain(fault.targets[0], undo=False)
        await asyncio.sleep(fault.lasts_s)
        await user.drain(fault.targets[0], undo=True)


def all_faults(seed: int) -> tuple[Fault, ...]:
    """What goes wrong in the history of this seed."""
    plan = plan_of(seed)
    return faults_of(seed, plan.names, plan.standbys)


def run_history(seed: int, faults: Sequence[Fault] | None = None, tells_messages: bool = False) -> Outcome:
    """Runs one history from its beginning to its end, and checks what was promised.

    `faults` are those of the seed unless they are given.
    """
    folder = Path(mkdtemp(prefix="peerloom-simulation-", dir=_MEMORY if _MEMORY.is_dir() else None))
    plan = plan_of(seed)
    chosen = all_faults(seed) if faults is None else tuple(faults)
    outcome = Outcome(seed, chosen, History(tells_messages))
    with silence():
        wiring.prepare_databases()
        try:
            _run(outcome, plan, folder)
        finally:
            outcome.history.clock = lambda: outcome.end_s  # it held the world
            shutil.rmtree(folder)
    return outcome


def _run(outcome: Outcome, plan: Plan, folder: Path) -> None:
    world = MemoryWorld.create(outcome.seed, folder, outcome.history)
    with surroundings(world):
        simulation = Simulation(world, plan, outcome.faults)
        try:
            world.loop.run_until_complete(simulation.run())
            for text in check(simulation):
                world.observed.break_promise(text)
        except StuckError as error:
            world.observed.break_promise(str(error))
        outcome.end_s, outcome.callbacks = world.loop.time(), world.loop.callbacks
        outcome.broken = world.observed.broken
        outcome.states = states(simulation)
