"""From the loss of leading coordinators until a worker that is killed at that moment has been replaced.

Registry, selector and trainer have a standby each, on one PostgreSQL: PEERLOOM_TEST_DATABASE names it, by the
URL of a user who may create databases. Leaders are lost in turn, one at a time and all at once, by SIGKILL
and by SIGSTOP. A standby on the same machine sees that a process was killed; one that is frozen looks like
one on a machine that is cut off. What a watching user sees is timed: from the signal to the first step of a
generation in which another worker stands in the place of the lost one.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks.measure import Measurement
from benchmarks.new_database import new_postgresql
from benchmarks.recovery.series import told
from peerloom import Client
from peerloom.client.types import GenerationFormed, JobEvent, StepCommitted, WorkerLost

COORDINATORS = ("registry", "selector", "trainer")
LOSSES: tuple[tuple[str, ...], ...] = (*((name,) for name in COORDINATORS), COORDINATORS)
ROUNDS, QUICK_ROUNDS, WORKERS = 30, 2, 3
GOAL_S, PATIENCE_S = 5.0, 120.0


def run(quick: bool) -> list[Measurement]:
    found = []
    for how in (signal.SIGKILL, signal.SIGSTOP):
        times = _times(how, QUICK_ROUNDS if quick else ROUNDS)
        what = f"from {how.name} of leaders and a worker to the first step with another worker"
        found += told(what, times, None, GOAL_S)
    return found


def profile(quick: bool) -> str:
    """A takeover is mostly the lease's time, which no profile shows."""
    return ""


def _times(how: signal.Signals, rounds: int) -> list[float]:
    times = []
    with new_postgresql() as url, TemporaryDirectory(prefix="peerloom-takeover-") as folder:
        system = _Replicas(url, Path(folder))
        try:
            with Client(system.registry, patience_s=PATIENCE_S) as client:
                next(client.watch_nodes())
                job = client.train("digits", requests=WORKERS, max_workers=WORKERS, epochs=100_000)
                watched = _Watched(job.watch())
                watched.until_whole()
                for number in range(rounds):
                    names = LOSSES[number % len(LOSSES)]
                    times.append(_time(system, watched, names, how))
                    print(f"   {how.name} of {', '.join(names)}: {times[-1]:.2f} s", flush=True)
                job.cancel()
        finally:
            system.close()
    return times


def _time(system: "_Replicas", watched: "_Watched", names: tuple[str, ...], how: signal.Signals) -> float:
    begin_s = time.monotonic()
    for name in names:
        system.lose(name, how)
    system.kill_worker()
    watched.until_whole(without=watched.until_lost())
    took_s = time.monotonic() - begin_s
    for name in names:
        system.restore(name)
    return took_s


class _Replicas:
    """Two processes of each coordinator, the first of each pair leads; and an agent."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder, self.registry = url, folder, ""
        self._processes: dict[str, list[tuple[subprocess.Popen[str], str]]] = {}
        for name in COORDINATORS:
            self._processes[name] = [self._start(name), self._start(name)]
            if name == "registry":
                self.registry = ",".join(address for _, address in self._processes[name])
        slots = ("--slots", str(WORKERS + 1), "--state", str(folder / "node"))
        self._agent, _ = self._launch("node_agent", *slots, "--registry", self.registry)

    def _start(self, name: str, listen: str = "127.0.0.1:0") -> tuple["subprocess.Popen[str]", str]:
        arguments = ["--database", self._url, "--listen", listen, "--state", str(self._folder / name)]
        registry = ["--registry", self.registry] if name != "registry" else []
        return self._launch(name, *arguments, *registry)

    def _launch(self, name: str, *arguments: str) -> tuple["subprocess.Popen[str]", str]:
        command = [sys.executable, "-m", f"peerloom.services.{name}", *arguments]
        if name == "node_agent":
            command += ["--listen", "127.0.0.1:0"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, stdin=subprocess.DEVNULL
        )
        assert process.stdout is not None, "its address is read there"
        return process, process.stdout.readline().strip().removeprefix("address=")

    def lose(self, name: str, how: signal.Signals) -> None:
        """Kills or freezes the leader."""
        self._processes[name][0][0].send_signal(how)

    def restore(self, name: str) -> None:
        """Starts the lost one anew, as the standby of the one that leads now."""
        (lost, address), leading = self._processes[name]
        lost.kill()
        lost.wait()
        self._processes[name] = [leading, self._start(name, address)]

    def kill_worker(self) -> None:
        """SIGKILL to one that has a job."""
        for child in psutil.Process(self._agent.pid).children(recursive=True):
            with suppress(OSError):  # it has just ended
                if Path(os.readlink(f"/proc/{child.pid}/fd/1")).name.startswith("worker-"):
                    child.kill()
                    return
        raise SystemExit("there is no worker to kill")

    def close(self) -> None:
        """Ends all."""
        everybody = [self._agent, *(each for pair in self._processes.values() for each, _ in pair)]
        for process in everybody:
            process.kill()
            process.wait()


class _Watched:
    """A job's events, read as far as somebody waits for."""

    def __init__(self, events: Iterator[JobEvent]) -> None:
        self._events = events
        self._workers: set[str] = set()

    def until_lost(self) -> str:
        """The id of the next worker that is lost."""
        for event in self._next():
            if isinstance(event, WorkerLost):
                return event.worker.id
        raise SystemExit("the job ended while a worker was to be lost")

    def until_whole(self, without: str = "") -> None:
        """Until a step of all workers, none of which is that one."""
        for event in self._next():
            is_whole = len(self._workers) == WORKERS and without not in self._workers
            if is_whole and isinstance(event, StepCommitted):
                return
        raise SystemExit("the job ended while a worker was to be replaced")

    def _next(self) -> Iterator[JobEvent]:
        for event in self._events:
            if isinstance(event, GenerationFormed):
                self._workers = {worker.id for worker in event.workers}
            yield event
