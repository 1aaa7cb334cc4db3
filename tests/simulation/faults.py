"""What goes wrong in a history: a list made from the seed, each item of which can be left out."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from peerloom.testing.virtual_loop import current_run
from tests.simulation.takeovers import DATABASE_HOST, SERVICES, leader_of

if TYPE_CHECKING:
    from peerloom.testing.simulated_processes import MemoryWorld, Process

MOST = 8
LAST_S = 10.0


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong at `at_s`, for `lasts_s`; `targets` are processes, `amount` how badly."""

    at_s: float
    kind: str
    targets: tuple[str, ...]
    lasts_s: float = 0.0
    amount: float = 0.0

    def __str__(self) -> str:
        how = f" by {self.amount:.3g}" if self.amount else ""
        return f"at {self.at_s:.3f} s: {self.kind} {' - '.join(self.targets)} for {self.lasts_s:.3f} s{how}"


def faults_of(seed: int, nodes: Sequence[str], standbys: Sequence[str]) -> tuple[Fault, ...]:
    """The same for the same seed. Of services with `standbys` whoever leads is lost, too."""
    chance = random.Random(f"{seed}/faults")
    found = [_draw(chance, nodes) for _ in range(chance.choice((0, 1, 2, 3, 3, 4, 4, 5, 6, MOST)))]
    if standbys:
        found += draw_losses(random.Random(f"{seed}/losses"), standbys)
    return tuple(sorted(found, key=lambda fault: fault.at_s))


def draw_losses(chance: random.Random, standbys: Sequence[str]) -> list[Fault]:
    """One to three moments at which leaders are lost, long enough for a standby to take over."""
    found = []
    for _ in range(chance.choice((1, 2, 2, 3))):
        lost = tuple(standbys) if chance.random() < 0.25 else (chance.choice(standbys),)
        at_s, kind = chance.uniform(1.0, 9.0), chance.choice(LOSSES)
        lasts_s = chance.uniform(0.1, 1.5) if kind == LOSE_ANSWERS else chance.uniform(2.5, 9.0)
        found.append(Fault(at_s, kind, lost, lasts_s))
    return found


def _draw(chance: random.Random, nodes: Sequence[str]) -> Fault:
    at_s = chance.uniform(0.5, LAST_S) if chance.random() < 0.3 else chance.uniform(1.2, 7.0)
    service = chance.choice((*SERVICES, "trainer"))
    node, anyone = chance.choice(nodes), chance.choice((*SERVICES, *nodes))
    other = chance.choice([one for one in (*SERVICES, *nodes, "user") if one != anyone])
    short_s, long_s = chance.uniform(0.05, 2.0), chance.uniform(0.3, 14.0)
    name = chance.choices(tuple(_KINDS), [weight for weight, _ in _KINDS.values()])[0]
    make = _KINDS[name][1]
    return make(Draw(at_s, name, service, node, anyone, other, short_s, long_s, chance))


@dataclass(frozen=True)
class Draw:
    """What was drawn for a fault before its kind was known."""

    at_s: float
    name: str
    service: str
    node: str
    anyone: str
    other: str
    short_s: float
    long_s: float
    chance: random.Random


LOSE_ANSWERS = "lose answers of database"
LOSSES = (
    *("kill leader", "freeze leader", "freeze leader", "cut leader from database", "isolate leader"),
    *(LOSE_ANSWERS, LOSE_ANSWERS),
)
_KINDS: dict[str, tuple[float, Callable[[Draw], Fault]]] = {
    "kill": (3.0, lambda d: Fault(d.at_s, d.name, (d.service,), d.short_s + 0.2)),
    "kill at commit": (
        4.0,
        lambda d: Fault(d.at_s, d.name, (d.service,), d.short_s + 0.2, d.chance.randint(1, 5)),
    ),
    "kill before commit": (
        4.0,
        lambda d: Fault(d.at_s, d.name, (d.service,), d.short_s + 0.2, d.chance.randint(1, 8)),
    ),
    "kill node": (2.0, lambda d: Fault(d.at_s, "kill", (d.node,), d.short_s + d.chance.choice((0.3, 6.0)))),
    "kill worker": (3.0, lambda d: Fault(d.at_s, d.name, (d.node,))),
    "freeze": (1.5, lambda d: Fault(d.at_s, d.name, (d.anyone,), d.long_s / 2)),
    "freeze worker": (1.5, lambda d: Fault(d.at_s, d.name, (d.node,), d.long_s)),
    "cut": (2.0, lambda d: Fault(d.at_s, d.name, (d.anyone, d.other), d.long_s)),
    "cut one way": (2.0, lambda d: Fault(d.at_s, d.name, (d.anyone, d.other), d.long_s)),
    "isolate": (1.0, lambda d: Fault(d.at_s, d.name, (d.anyone,), d.long_s)),
    "reset": (
        3.0,
        lambda d: Fault(d.at_s, d.name, (d.anyone,), d.short_s * 3, d.chance.uniform(0.005, 0.15)),
    ),
    "slow": (1.0, lambda d: Fault(d.at_s, d.name, (d.anyone,), d.short_s * 3, d.chance.uniform(0.05, 0.8))),
    "slow disk": (
        1.0,
        lambda d: Fault(d.at_s, d.name, (d.service,), d.short_s * 3, d.chance.uniform(0.05, 0.8)),
    ),
    "full disk": (1.0, lambda d: Fault(d.at_s, d.name, (d.service,), d.short_s * 2)),
    "stop": (0.7, lambda d: Fault(d.at_s, d.name, (d.node,), d.short_s)),
    "drain": (1.0, lambda d: Fault(d.at_s, d.name, (d.node,), d.long_s)),
    "cancel": (0.4, lambda d: Fault(d.at_s, d.name, ("user",))),
}


class Mischief:
    """Carries faults out, and takes them back when their time is over."""

    def __init__(
        self, world: "MemoryWorld", faults: Sequence[Fault], on_user: Callable[[Fault], None]
    ) -> None:
        self._world, self._on_user = world, on_user
        self._chance = random.Random(f"{world.seed}/mischief")
        self.end_s = 0.0
        for fault in faults:
            self.end_s = max(self.end_s, fault.at_s + fault.lasts_s)
            world.loop.later(fault.at_s, self._begin, fault)

    def _begin(self, fault: Fault) -> None:
        self._world.history.note(f"FAULT {fault}")
        self._world.observed.disturbed(fault)
        getattr(self, "_" + fault.kind.replace(" ", "_"))(fault)

    def _later(self, after_s: float, work: Callable[..., None], *arguments: object) -> None:
        self._world.loop.later(after_s, work, *arguments)

    def _process(self, fault: Fault) -> "Process":
        return self._world.processes[fault.targets[0]]

    def _kill(self, fault: Fault) -> None:
        process = self._process(fault)
        process.kill("a fault")
        self._later(fault.lasts_s, process.start)

    def _leaders(self, fault: Fault) -> "list[Process]":
        found = [leader_of(self._world, service) for service in fault.targets]
        names = ", ".join(leader.name for leader in found)
        self._world.history.note(f"struck while leading: {names}")
        return found

    def _kill_leader(self, fault: Fault) -> None:
        for leader in self._leaders(fault):
            leader.kill("a fault")
            self._later(fault.lasts_s, leader.start)

    def _freeze_leader(self, fault: Fault) -> None:
        for leader in self._leaders(fault):
            self._freeze_one(leader, fault.lasts_s)

    def _cut_leader_from_database(self, fault: Fault) -> None:
        for leader in self._leaders(fault):
            pairs = [(DATABASE_HOST, leader.host), (leader.host, DATABASE_HOST)]
            self._cut_pairs(pairs, fault.lasts_s)

    def _lose_answers_of_database(self, fault: Fault) -> None:
        for leader in self._leaders(fault):
            self._cut_pairs([(DATABASE_HOST, leader.host)], fault.lasts_s)

    def _isolate_leader(self, fault: Fault) -> None:
        for leader in self._leaders(fault):
            self._isolate_host(leader.host, fault.lasts_s)

    def _kill_at_commit(self, fault: Fault) -> None:
        process, run = self._process(fault), self._process(fault).run
        left = int(fault.amount)

        def committed() -> None:
            nonlocal left
            left -= current_run.get() is run
            if left == 0 and run is not None and process.run is run:
                process.kill("it has just committed")
                self._later(fault.lasts_s, process.start)

        process.disk.on_commit = committed

    def _kill_before_commit(self, fault: Fault) -> None:
        process, run = self._process(fault), self._process(fault).run
        disk, left = process.disk, int(fault.amount)

        def begins() -> None:
            nonlocal left
            left -= current_run.get() is run
            if left == 0 and run is not None and process.run is run:
                process.kill("it was about to commit")
                disk.failing = "the process is dead"
                self._later(0.0, setattr, disk, "failing", "")
                self._later(fault.lasts_s, process.start)

        disk.on_begin = begins

    def _kill_worker(self, fault: Fault) -> None:
        for worker in self._workers(fault)[:1]:
            worker.kill("a fault")

    def _freeze(self, fault: Fault) -> None:
        self._freeze_one(self._process(fault), fault.lasts_s)

    def _freeze_worker(self, fault: Fault) -> None:
        for worker in self._workers(fault)[:1]:
            self._freeze_one(worker, fault.lasts_s)

    def _freeze_one(self, process: "Process", lasts_s: float) -> None:
        run = process.run
        if run is not None and not run.is_frozen:
            run.freeze()
            self._later(lasts_s, run.thaw)

    def _workers(self, fault: Fault) -> "list[Process]":
        beginning = f"{fault.targets[0]}.worker"
        processes = self._world.processes
        return [p for name, p in processes.items() if name.startswith(beginning) and p.is_running]

    def _cut(self, fault: Fault) -> None:
        one, other = (self._world.processes[name].host for name in fault.targets)
        self._cut_pairs([(one, other), (other, one)], fault.lasts_s)

    def _cut_one_way(self, fault: Fault) -> None:
        one, other = (self._world.processes[name].host for name in fault.targets)
        self._cut_pairs([(one, other)], fault.lasts_s)

    def _isolate(self, fault: Fault) -> None:
        self._isolate_host(self._process(fault).host, fault.lasts_s)

    def _isolate_host(self, host: str, lasts_s: float) -> None:
        others = self._other_hosts(host)
        self._cut_pairs([(host, one) for one in others] + [(one, host) for one in others], lasts_s)

    def _cut_pairs(self, pairs: list[tuple[str, str]], lasts_s: float) -> None:
        network = self._world.network
        for pair in pairs:
            network.cut(*pair)
            self._later(lasts_s, network.heal, *pair)

    def _other_hosts(self, host: str) -> list[str]:
        return sorted({process.host for process in self._world.processes.values()} - {host})  # no database

    def _reset(self, fault: Fault) -> None:
        self._change_links(fault, "reset_chance", fault.amount)

    def _slow(self, fault: Fault) -> None:
        self._change_links(fault, "delay_s", fault.amount)

    def _change_links(self, fault: Fault, what: str, amount: float) -> None:
        host, network = self._process(fault).host, self._world.network
        others = self._other_hosts(host)
        links = [network.link(host, one) for one in others] + [network.link(one, host) for one in others]
        for link in links:
            setattr(link, what, getattr(link, what) + amount)

        def undo() -> None:
            for link in links:
                setattr(link, what, max(0.0, getattr(link, what) - amount))

        self._later(fault.lasts_s, undo)

    def _slow_disk(self, fault: Fault) -> None:
        disk = self._process(fault).disk
        disk.slow_s = fault.amount
        self._later(fault.lasts_s, setattr, disk, "slow_s", 0.0)

    def _full_disk(self, fault: Fault) -> None:
        disk = self._process(fault).disk
        disk.failing = self._chance.choice(("database or disk is full", "disk I/O error"))
        self._later(fault.lasts_s, setattr, disk, "failing", "")

    def _stop(self, fault: Fault) -> None:
        process = self._process(fault)
        if process.run is not None and process.run.stop is not None:
            self._world.history.note(f"{process.name} is asked to stop")
            process.restart_s = fault.lasts_s
            process.run.stop()

    def _drain(self, fault: Fault) -> None:
        self._on_user(fault)

    def _cancel(self, fault: Fault) -> None:
        self._on_user(fault)
