"""A job of ours under observation: its events as they come, and the processes of its workers."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import psutil

from benchmarks.measure import ROOT, let_nodes_import
from benchmarks.recovery.small_model import WORKERS
from peerloom.embedded import Embedded

LIMIT_S = 120.0
SETTLE_S = 1.5  # of undisturbed training in full strength before the next fault
# And a class of small_task, a backend, and perhaps how steps are synchronised.
FOLLOW = (sys.executable, "-m", "benchmarks.recovery.follow")


@dataclass(frozen=True)
class Seen:
    """One event; `at_s` is the trainer's stamp in seconds since the epoch.

    `workers` are the id and the node of each in a `generation`, by rank, and `step` is the one that it begins
    from; else `step` is the one that it committed, and `step_s` what it took.
    """

    at_s: float
    kind: str
    workers: tuple[tuple[str, str], ...] = ()
    generation: int = 0
    step: int = 0
    step_s: float = 0.0
    text: str = ""
    final: bool = False


class RunningJob:
    """Follows one job, which `process` has handed in."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.events: list[Seen] = []
        self._changed = threading.Condition()
        assert process.stdout is not None, "it tells the events there"
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            told = json.loads(line)
            told["workers"] = tuple((worker, node) for worker, node in told.get("workers", ()))
            with self._changed:
                self.events.append(Seen(**told))
                self._changed.notify_all()

    def wait_for(self, what: str, found: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """Returns once `found()`; asked after each event. Raises SystemExit if the job or the time ends."""
        deadline_s = time.monotonic() + limit_s
        with self._changed:
            while not found():
                last = self.events[-1] if self.events else None
                if last is not None and last.final:
                    raise SystemExit(f"the job ended while waiting for {what}: {last.text}")
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise SystemExit(f"no {what} within {limit_s:.0f} s; the last event: {last}")
                self._changed.wait(min(left_s, 0.5))

    def after(self, moment_s: float) -> list[Seen]:
        """The events stamped after a moment, in order."""
        late = []
        for event in reversed(self.events):
            if event.at_s <= moment_s:
                break
            late.append(event)
        return late[::-1]

    @property
    def generation(self) -> Seen | None:
        """The newest one."""
        return next((one for one in reversed(self.events) if one.kind == "GenerationFormed"), None)

    def wait_until_full(self) -> Seen:
        """The generation once all workers are in it and have made steps for a while."""

        def is_full() -> bool:
            newest, last = self.generation, self.events[-1] if self.events else None
            if newest is None or last is None or len(newest.workers) != WORKERS:
                return False
            return last.kind == "StepCommitted" and last.at_s - newest.at_s > SETTLE_S

        self.wait_for("job in full strength", is_full)
        assert self.generation is not None, "it was just there"
        return self.generation

    def wait_for_steps(self, count: int) -> None:
        """Returns once the newest generation has all workers, and has made so many steps."""

        def are_made() -> bool:
            newest, last = self.generation, self.events[-1]
            if newest is None or len(newest.workers) != WORKERS or last.kind != "StepCommitted":
                return False
            return last.step >= newest.step + count

        self.wait_for(f"{count} steps in full strength", are_made)

    def recovered_at_s(self, worker: str, moment_s: float) -> float | None:
        """When the first step of a generation without the worker was committed; None: not yet."""
        without = set[int]()
        for event in self.after(moment_s):
            if event.kind == "GenerationFormed" and worker not in {one for one, _ in event.workers}:
                without.add(event.generation)
            if event.kind == "StepCommitted" and event.generation in without:
                return event.at_s
        return None

    def steps_between(self, begin_s: float, end_s: float) -> int:
        """Committed steps stamped within a window."""
        return sum(1 for e in self.events if e.kind == "StepCommitted" and begin_s <= e.at_s < end_s)

    def end(self) -> None:
        """Cancels the job and waits for its end."""
        assert self._process.stdin is not None, "it waits for its end there"
        self._process.stdin.close()
        self._process.wait(LIMIT_S)
        self._reader.join(LIMIT_S)


def process_of(worker: str) -> psutil.Process:
    """The worker's process: the one whose output is its log."""
    for process in psutil.process_iter():
        try:
            output = os.readlink(f"/proc/{process.pid}/fd/1")
        except OSError:
            continue
        if Path(output).name == f"{worker}.log":
            return process
    raise SystemExit(f"there is no process of {worker}")


def environment(address: str = "") -> dict[str, str]:
    """What a process needs to import the benchmark, as the nodes do; and where the registry is."""
    let_nodes_import()
    return {**os.environ, **({"PEERLOOM_ADDRESS": address} if address else {})}


@contextmanager
def running_system(
    task: str = "Small", backend: str = "gloo", sync: str = ""
) -> Iterator[tuple[RunningJob, Embedded]]:
    """A fresh system of five nodes with a slot each on loopback, and its job, training in full strength."""
    environment()
    with (
        TemporaryDirectory(prefix="peerloom-recovery-") as state,
        Embedded(Path(state), slots=(1,) * WORKERS, log_level="info") as system,
    ):
        following = subprocess.Popen(
            [*FOLLOW, task, backend, sync],
            cwd=ROOT,
            env=environment(system.address),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running = RunningJob(following)
        running.wait_until_full()
        yield running, system
        running.end()


@contextmanager
def running_job(task: str = "Small", backend: str = "gloo", sync: str = "") -> Iterator[RunningJob]:
    """The job of a fresh system, for those who don't touch the coordinators."""
    with running_system(task, backend, sync) as (running, _):
        yield running
