"""Strikes workers at named points of their training, one planned fault after the other.

Each worker of a `fault_task:Struck` asks here at each point whether it may go on. The worker that a fault is
meant for gets no answer: it is held exactly there, and then killed or stopped. So nothing depends on time.
"""

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from worker_processes import agent_of

# While the next fault waits for somebody to come, a step takes at least so long, twice as long after each
# PACED_STEPS: the job outlasts all faults on a slow machine too, and a fast one waits for little. No fault
# depends on it.
PACE_S, PACED_STEPS = 0.02, 100
HOLD_LIMIT_S = 30.0


@dataclass(frozen=True)
class Fault:
    """What strikes whom, and where.

    All `ranks` (empty: whoever comes first) must be at `point` of a generation of `world` workers (0: of any
    size), with fewer than `before_step` steps made. `kind`: "kill" a worker, "stop" it until the others have
    gone on, "agent" (kill its agent), "freeze" (stop its agent and all its workers). `while_loading`:
    only while a newcomer loads, which is held at that until the fault has struck.
    """

    point: str
    ranks: tuple[int, ...] = ()
    kind: str = "kill"
    world: int = 0
    before_step: int = 2**63
    while_loading: bool = False


class Injector:
    """Listens on a socket in `folder` for the workers of one job; `faults` strike in their order."""

    def __init__(self, folder: Path, faults: list[Fault]) -> None:
        self.path = folder / "faults"
        self.left = list(faults)
        self.struck: list[Fault] = []
        self.killed = 0
        self.differing: list[str] = []
        self._changed = threading.Condition()
        self._held: dict[int, int] = {}  # rank: pid, of those that the next fault is meant for
        self._loading = 0
        self._stopped: list[psutil.Process] = []
        self._stopped_in = ""
        self._generation_of: dict[int, str] = {}
        self._stepping: dict[str, set[int]] = {}  # who was seen in which generation since the last strike
        self._whole_at: dict[str, int] = {}  # the step at which all of a generation had been seen
        self._digests: dict[tuple[str, int], str] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Lets everybody go on who still waits here."""
        with self._changed:
            self.left.clear()
            self._continue_stopped()
            self._changed.notify_all()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        try:
            with line, line.makefile("rw") as file:
                for said in file:
                    if self._reached(json.loads(said)):
                        file.write("go on\n")
                        file.flush()
        except OSError:
            return  # the worker is dead, as it should be

    def _reached(self, at: dict[str, Any]) -> bool:
        """True once the worker may go on; False if it was killed."""
        with self._changed:
            if at["point"] == "step":
                self._note_step(at)
            fault = self.left[0] if self.left else None
            if fault is None:
                return True
            if fault.while_loading and at["point"] == "loading":
                self._hold_newcomer(fault)
                return True
            if not self._is_meant(fault, at):
                if at["point"] == "step" and at["rank"] == 0 and not self._is_due(fault, at):
                    pace_s = PACE_S * 2.0 ** (at["step"] // PACED_STEPS)
                    self._changed.wait_for(lambda: not self.left, pace_s)
                return True
            self._held[at["rank"]] = at["pid"]
            if len(self._held) >= max(1, len(fault.ranks)):
                self._strike(fault)
            self._wait(lambda: self.left[:1] != [fault])
            self._wait(lambda: not self._is_stopped(at["pid"]))
            return psutil.pid_exists(at["pid"])

    def _hold_newcomer(self, fault: Fault) -> None:
        self._loading += 1
        self._wait(lambda: self.left[:1] != [fault])
        self._loading -= 1

    def _is_meant(self, fault: Fault, at: dict[str, Any]) -> bool:
        return (
            at["point"] == fault.point
            and (not fault.ranks or at["rank"] in fault.ranks)
            and at["world"] == (fault.world or at["world"])
            and at["step"] < fault.before_step
            and (not fault.while_loading or self._loading > 0)
            and not self._stopped
            and self._is_fresh(fault, at)
        )

    def _is_due(self, fault: Fault, at: dict[str, Any]) -> bool:
        # All that it needs is here and moves on towards its point: nobody has to come or go before.
        return (
            fault.world == at["world"] and bool(fault.ranks) and not fault.while_loading and not self._stopped
        )

    def _is_fresh(self, fault: Fault, at: dict[str, Any]) -> bool:
        # A crew in which the last fault has just struck still counts its dead. And all of a crew must agree
        # from which step on a fault is meant for them, or some would wait for the others.
        if not self.struck or not fault.world:
            return True
        return at["step"] > self._whole_at.get(self._generation_of.get(at["pid"], ""), at["step"])

    def _strike(self, fault: Fault) -> None:
        pids, self._held = list(self._held.values()), {}
        agents = {agent_of(pid) for pid in pids}
        match fault.kind:
            case "kill":
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
                self.killed += len(pids)
            case "agent":
                for pid in agents:
                    os.kill(pid, signal.SIGKILL)
            case "stop":
                self._stop([psutil.Process(pid) for pid in pids], pids[0])
            case "freeze":
                hosts = [psutil.Process(pid) for pid in agents]
                self._stop(
                    [*hosts, *(child for host in hosts for child in host.children(recursive=True))], pids[0]
                )
        self.struck.append(self.left.pop(0))
        self._stepping.clear()
        self._whole_at.clear()
        self._changed.notify_all()

    def _stop(self, processes: list[psutil.Process], pid: int) -> None:
        self._stopped_in = self._generation_of.get(pid, "")
        self._stopped = processes
        for process in processes:
            process.suspend()

    def _note_step(self, at: dict[str, Any]) -> None:
        generation = at["generation"]
        self._generation_of[at["pid"]] = generation
        self._stepping.setdefault(generation, set()).add(at["pid"])
        if len(self._stepping[generation]) == at["world"]:
            self._whole_at.setdefault(generation, at["step"])
        if self._stopped and generation != self._stopped_in and not self._is_stopped(at["pid"]):
            self._continue_stopped()  # the others have gone on without it
        if generation:
            known = self._digests.setdefault((generation, at["step"]), at["digest"])
            if known != at["digest"]:
                self.differing.append(f"rank {at['rank']} of {at['world']} differs before step {at['step']}")

    def _is_stopped(self, pid: int) -> bool:
        return any(process.pid == pid for process in self._stopped)

    def _continue_stopped(self) -> None:
        for process in self._stopped:
            process.resume()
        self._stopped = []
        self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool]) -> None:
        if not self._changed.wait_for(condition, HOLD_LIMIT_S):
            self.differing.append(f"held for {HOLD_LIMIT_S:.0f} s at {self.left[:1]}")
