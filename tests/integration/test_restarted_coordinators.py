"""Aim: who loses a worker just after trainer, selector and registry came back goes on at once.

Method: all three are killed and started again, and a worker is killed at a moment that an event names. What
made the others wait is checked by what it was, not by the time it took: the loss is told by the agent and is
no time limit that passed, the others don't wait for nodes, and the trainer has nothing of torch to load.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from paced_jobs import begin_patient_job
from worker_processes import workers_of

from peerloom import Client, Embedded
from peerloom.client.types import GenerationFormed, JobEvent, StateChanged, StepCommitted, WorkerLost
from peerloom.embedded.health import Prober

LIMIT_S = 120.0
WORKERS = 3
COORDINATORS = ("trainer", "selector", "registry")
pytestmark = pytest.mark.timeout(300)


def restart(system: Embedded) -> None:
    """Kills all coordinators; returns when another trainer answers."""
    before, pause, deadline_s = system.pids["trainer"], threading.Event(), time.monotonic() + LIMIT_S
    for name in COORDINATORS:
        os.kill(system.pids[name], signal.SIGKILL)
    while True:
        with Prober() as prober:
            if (
                system.pids["trainer"] != before
                and prober.health(system.addresses["trainer"]) != "UNREACHABLE"
            ):
                return
        assert time.monotonic() < deadline_s, "the trainer did not come back"
        pause.wait(0.02)


class Watched:
    """A job's events, read as far as somebody waits for."""

    def __init__(self, events: Iterator[JobEvent]) -> None:
        self._events = events
        self.formed: GenerationFormed | None = None
        self.steps: list[int] = []

    def until(self, found: Callable[[JobEvent], bool]) -> list[JobEvent]:
        """The events up to the first that is looked for."""
        seen = list[JobEvent]()
        for event in self._events:
            seen.append(event)
            if isinstance(event, GenerationFormed):
                self.formed = event
            if isinstance(event, StepCommitted):
                self.steps.append(event.step)
            if found(event):
                return seen
        told = "\n".join(f"{event.time:%T.%f} {event}" for event in seen[-20:])
        raise AssertionError(f"the job ended before that:\n{told}")

    def until_step(self) -> list[JobEvent]:
        return self.until(lambda event: isinstance(event, StepCommitted))

    def until_whole(self) -> None:
        """Until all workers have made a step together: before it one that has just come lacks the state."""

        def is_whole(event: JobEvent) -> bool:
            formed = self.formed
            if formed is None or len(formed.workers) < WORKERS or not isinstance(event, StepCommitted):
                return False
            return event.generation == formed.generation

        self.until(is_whole)

    def until_lost(self) -> WorkerLost:
        *_, lost = self.until(lambda event: isinstance(event, WorkerLost))
        assert isinstance(lost, WorkerLost)
        return lost

    def until_without(self, worker: str) -> list[JobEvent]:
        """The events up to the first step of a generation that this worker isn't in."""

        def is_without(event: JobEvent) -> bool:
            return isinstance(event, GenerationFormed) and worker not in {each.id for each in event.workers}

        return self.until(is_without) + self.until_step()


@pytest.mark.usefixtures("processes_are_executed")  # a fork has all that the tests' origin has loaded
def test_a_worker_killed_just_after_a_restart_costs_the_others_no_wait(tmp_path: Path) -> None:
    """As soon as the trainer answers; after the first step that it hears of; and twenty steps later."""
    with Embedded(tmp_path, (1,) * WORKERS) as system, Client(system.address, patience_s=LIMIT_S) as client:
        job = begin_patient_job(client, WORKERS)
        watched = Watched(job.watch())
        for number, steps_later in enumerate((0, 1, 20), start=1):
            watched.until_whole()
            restart(system)
            for _ in range(steps_later):
                watched.until_step()
            [worker] = workers_of(system.pids[f"node-{number}"])
            worker.kill()
            lost = watched.until_lost()
            assert lost.reason == "its process was killed by signal 9"
            seen = watched.until_without(lost.worker.id)
            assert "waiting" not in [event.state for event in seen if isinstance(event, StateChanged)]
            maps = Path(f"/proc/{system.pids['trainer']}/maps").read_text()
            assert "libtorch" not in maps, "a new trainer would load torch before it can form a generation"
        assert job.cancel().state == "cancelled"
        assert watched.steps == list(range(1, len(watched.steps) + 1)), "no step twice, none left out"
        assert client.interruptions() == [], "a registry that comes back declares nobody dead"
        ledger = job.status().ledger
        assert ledger is not None
        assert ledger.is_exact, ledger.verdict
