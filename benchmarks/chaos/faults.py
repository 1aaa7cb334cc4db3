"""Which faults strike, when and whom: drawn from a seed before the run, carried out during it."""

import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from benchmarks.chaos.places import Place
from benchmarks.chaos.system import COORDINATORS, Part, Parts

PAUSE_S = (1.0, 5.0)
KINDS = (
    "kill a worker",
    "kill two workers at once",
    "stop a worker for a while",
    "slow a worker to a third",
    "kill an agent",
    "kill what a node forks its workers from",
    "freeze a node for a while",
    "a node leaves politely and joins again",
    "cut a node off for a while",
    "kill a coordinator",
    "kill all coordinators",
    "freeze a coordinator for a while",
)
FREEZE_COORDINATOR = KINDS[-1]  # who has no standby would only wait
OF_COORDINATORS = ("kill a coordinator", "kill all coordinators", FREEZE_COORDINATOR)
INTERRUPTING = ("kill an agent", "freeze a node for a while", "cut a node off for a while")
# The supervisor gives a process up that ends more often; a sixth end within a minute isn't our subject.
DEATHS_ALLOWED, WITHIN_S = 4, 62.0
SLICE_S = 0.03


@dataclass(frozen=True)
class Fault:
    """One strike: after a pause, of a kind, for so long if it lasts; `lot`, 0 to 1, draws the victim."""

    pause_s: float
    kind: str
    lasts_s: float
    lot: float


def draw(
    seed: int,
    seconds: float,
    can_cut: bool,
    has_standbys: bool = False,
    pause_s: tuple[float, float] = PAUSE_S,
) -> list[Fault]:
    """The faults of a run; those that need a network of their own, or standbys, are left out without."""
    chance, faults, at_s = random.Random(seed), [], 0.0
    while at_s < seconds:
        kind = chance.choice(KINDS)
        fault = Fault(chance.uniform(*pause_s), kind, chance.uniform(0.5, 6.0), chance.random())
        at_s += fault.pause_s
        if (can_cut or not kind.startswith("cut")) and (has_standbys or kind != FREEZE_COORDINATOR):
            faults.append(fault)
    return faults


class Striker:
    """Strikes; `struck` counts by kind. Whatever lasts ends by itself, or in `end`.

    The agents of `spared` nodes are never ended, by no kill and no leave.
    """

    def __init__(self, place: Place, parts: Parts, spared: Collection[str] = ()) -> None:
        self.struck: Counter[str] = Counter()
        self._place, self._parts, self._spared = place, parts, spared
        self._deaths_s: dict[str, list[float]] = defaultdict(list)
        self._hampered: set[str] = set()  # nodes that are frozen, stopped, slowed or cut off just now
        self._ending = threading.Event()
        self._lasting: list[threading.Thread] = []

    def strike(self, fault: Fault) -> None:
        """Carries a fault out, unless it would take the last worker whose state is safe."""
        parts = self._parts.find()
        workers = [part for part in parts if part.is_worker and part.name not in self._hampered]
        agents = [part for part in parts if part.name.startswith("node-") and not part.is_worker]
        coordinators = [part for part in parts if part.name in COORDINATORS]
        with suppress(psutil.NoSuchProcess):  # it has just died of an earlier fault
            if self._carry_out(fault, workers, agents, coordinators):
                self.struck[fault.kind] += 1
                print(f"  {fault.kind}", file=sys.stderr)

    def strike_all(self, faults: Sequence[Fault], over: threading.Event) -> None:
        """Carries the faults out, each so long after the one before; in the end all that lasts is ended.

        What a strike takes is part of the pause after it.
        """
        due_s = time.monotonic()
        for fault in faults:
            due_s += fault.pause_s
            if over.wait(max(0.0, due_s - time.monotonic())):
                break
            self.strike(fault)
        self.end()

    def end(self) -> None:
        """Ends all that lasts."""
        self._ending.set()
        for thread in self._lasting:
            thread.join()

    def _carry_out(
        self, fault: Fault, workers: list[Part], agents: list[Part], coordinators: list[Part]
    ) -> bool:
        nodes = sorted({part.name for part in workers})
        if fault.kind.startswith("kill a coordinator"):
            return self._kill([coordinators[int(fault.lot * len(coordinators))]] if coordinators else [])
        if fault.kind == "kill all coordinators":
            return self._kill(coordinators)
        if fault.kind == FREEZE_COORDINATOR:
            return self._freeze_coordinator(fault, coordinators)
        if "a worker" in fault.kind or "two workers" in fault.kind:
            count = 2 if "two" in fault.kind else 1
            if len(workers) <= count + 1:
                return False
            first = int(fault.lot * len(workers))
            return self._strike_workers(fault, [workers[(first + i) % len(workers)] for i in range(count)])
        if len(nodes) < 2:
            return False
        name = nodes[int(fault.lot * len(nodes))]
        return self._strike_node(fault, name, [a for a in agents if a.name == name])

    def _freeze_coordinator(self, fault: Fault, coordinators: list[Part]) -> bool:
        if not coordinators:
            return False
        frozen = coordinators[int(fault.lot * len(coordinators))].process
        self._for_a_while(fault, "", lambda: self._hold([frozen], fault.lasts_s))
        return True

    def _strike_workers(self, fault: Fault, victims: list[Part]) -> bool:
        if fault.kind.startswith("kill"):
            for victim in victims:
                victim.process.kill()
        elif fault.kind.startswith("stop"):
            self._for_a_while(fault, victims[0].name, lambda: self._hold([victims[0].process], fault.lasts_s))
        else:
            self._for_a_while(fault, "", lambda: self._slow(victims[0].process, fault.lasts_s))
        return True

    def _strike_node(self, fault: Fault, name: str, agents: list[Part]) -> bool:
        if not agents:
            return False
        agent = agents[0].process
        if fault.kind == "kill an agent":
            return self._kill(agents)
        if fault.kind.startswith("kill what"):
            servers = [child for child in agent.children() if "peerloom.worker" in child.cmdline()]
            return self._kill([Part(f"fork server of {name}", server) for server in servers])
        if fault.kind.startswith("a node leaves"):
            return self._may_die(name) and self._send(agent, signal.SIGTERM)
        if fault.kind.startswith("freeze"):
            both = [agent, *agent.children(recursive=True)]
            self._for_a_while(fault, name, lambda: self._hold(both, fault.lasts_s))
        else:
            self._for_a_while(fault, name, lambda: self._cut(name, fault.lasts_s))
        return True

    def _may_die(self, name: str) -> bool:
        if name in self._spared:
            return False
        now_s = time.monotonic()
        recent = [at_s for at_s in self._deaths_s[name] if now_s - at_s < WITHIN_S]
        self._deaths_s[name] = [*recent, now_s]
        return len(recent) < DEATHS_ALLOWED

    def _kill(self, victims: list[Part]) -> bool:
        killed = [victim for victim in victims if self._may_die(victim.name)]
        for victim in killed:
            victim.process.kill()
        return bool(killed)

    def _send(self, process: psutil.Process, number: signal.Signals) -> bool:
        process.send_signal(number)
        return True

    def _for_a_while(self, fault: Fault, node: str, work: Callable[[], None]) -> None:
        def run() -> None:
            with suppress(psutil.NoSuchProcess):
                work()
            self._hampered.discard(node)

        self._hampered |= {node} - {""}
        thread = threading.Thread(target=run, name=fault.kind)
        thread.start()
        self._lasting.append(thread)

    def _hold(self, processes: list[psutil.Process], lasts_s: float) -> None:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        self._ending.wait(lasts_s)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def _slow(self, process: psutil.Process, lasts_s: float) -> None:
        end_s = time.monotonic() + lasts_s
        while time.monotonic() < end_s and not self._ending.is_set():
            process.suspend()
            self._ending.wait(2 * SLICE_S)
            process.resume()
            self._ending.wait(SLICE_S)

    def _cut(self, node: str, lasts_s: float) -> None:
        self._place.cut(node)
        self._ending.wait(lasts_s)
        self._place.mend(node)
