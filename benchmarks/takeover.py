"""From the loss of leading coordinators until a worker that is killed at that moment has been replaced.

Registry, selector and trainer have a standby each, on one PostgreSQL: PEERLOOM_TEST_DATABASE names it, by the
URL of a user who may create databases. Leaders are lost in turn, one at a time and all at once: by SIGKILL,
by SIGSTOP, and by a cut of their network, for which each coordinator is on a host of its own, as a network
namespace; that needs root. A standby on the same machine sees that a process was killed. It can't see why a
frozen one is still, and nothing of one on another host. What a watching user sees is timed: from the loss to
the first step of a generation in which another worker stands in the place of the lost one. And, where leaders
alone are lost, the longest time between two steps.
"""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.chaos.system import COORDINATORS
from benchmarks.cuttable_network import CuttableNetwork
from benchmarks.measure import Measurement, let_nodes_import, measurement
from benchmarks.new_database import by_proxy, new_postgresql
from benchmarks.recovery.series import told
from benchmarks.recovery.steps_file import Committed, StepsRead
from benchmarks.takeover_replicas import HOSTS, Replicas
from peerloom import Client
from peerloom.client.types import GenerationFormed, JobEvent, StepCommitted, WorkerLost
from peerloom.errors import FailedPreconditionError

CUT = "a cut network"
# Ways to lose leaders, and what each is together with the loss of a worker.
WAYS = {
    "SIGKILL": "SIGKILL of leaders and a worker",
    "SIGSTOP": "SIGSTOP of leaders and a worker",
    CUT: "a cut of leaders' network and SIGKILL of a worker",
}
LOSSES: tuple[tuple[str, ...], ...] = (*((name,) for name in COORDINATORS), COORDINATORS)
# With a worker each, and then without.
ROUNDS, QUICK_ROUNDS, WORKERS = (30, 8), (2, 1), 3
GOAL_S, PATIENCE_S = 5.0, 120.0
TASK = "benchmarks.takeover_task:Noted"
NETWORK = "198.19.70"  # of the block for tests of networks (RFC 2544)


def run(quick: bool) -> list[Measurement]:
    found = []
    for way, with_worker in WAYS.items():
        try:
            times_s, pauses_s = _times(way, *(QUICK_ROUNDS if quick else ROUNDS))
        except FailedPreconditionError as error:
            print(f"leaders can't be lost by {way} here: {error.message}", file=sys.stderr)
            continue
        found += told(f"from {with_worker} to the first step with another worker", times_s, None, GOAL_S)
        what = (
            f"the longest time between two steps when leaders alone are lost by {way}, p95 of {len(pauses_s)}"
        )
        found.append(measurement(what, "s", pauses_s, statistic="p95"))
    return found


def profile(quick: bool) -> str:
    """A takeover is mostly the lease's time, which no profile shows."""
    return ""


def _times(way: str, rounds: int, rounds_alone: int) -> tuple[list[float], list[float]]:
    let_nodes_import()
    times_s, pauses_s = [], []
    with (
        TemporaryDirectory(prefix="peerloom-takeover-") as name,
        _system(way, Path(name)) as system,
        Client(system.registry, patience_s=PATIENCE_S) as client,
    ):
        next(client.watch_nodes())
        job = client.train(
            TASK, requests=WORKERS, max_workers=WORKERS, epochs=100_000, arguments={"folder": name}
        )
        watched = _Watched(job.watch())
        watched.until_whole()
        for number in range(rounds):
            names = LOSSES[number % len(LOSSES)]
            times_s.append(_time_s(system, watched, names, way))
            print(f"   {way} of {', '.join(names)}: {times_s[-1]:.2f} s", flush=True)
        steps = StepsRead(Path(name))
        for number in range(rounds_alone):
            names = LOSSES[-1 - number % len(LOSSES)]
            pauses_s.append(_pause_s(system, steps, names, way))
            print(f"   {way} of {', '.join(names)} alone: no step for {pauses_s[-1]:.3f} s", flush=True)
            watched.until_whole()
        job.cancel()
        watched.until_ended()
    return times_s, pauses_s


@contextmanager
def _system(way: str, folder: Path) -> Iterator[Replicas]:
    with new_postgresql() as url:
        if way != CUT:
            with closing(Replicas(url, folder, WORKERS + 1)) as system:
                yield system
            return
        with (
            CuttableNetwork(HOSTS, NETWORK, folder / "network") as network,
            by_proxy(url, network.ours) as (_, from_there),
            closing(Replicas(from_there, folder, WORKERS + 1, network)) as system,
        ):
            yield system


def _lose(system: Replicas, names: Sequence[str], way: str) -> None:
    if way == CUT:
        system.cut(names)
    else:
        system.signal(names, signal.Signals[way])


def _time_s(system: Replicas, watched: "_Watched", names: Sequence[str], way: str) -> float:
    """Until a worker is replaced that is killed with these leaders."""
    begin_s = time.monotonic()
    _lose(system, names, way)
    system.kill_worker()
    watched.until_whole(without=watched.until_lost())
    took_s = time.monotonic() - begin_s
    system.wait_until_standbys_lead(names)
    system.restore(names)
    return took_s


def _pause_s(system: Replicas, steps: StepsRead, names: Sequence[str], way: str) -> float:
    """The longest time between two steps of a worker, from the loss of these leaders until standbys lead."""
    begin_s = time.time()
    _lose(system, names, way)
    system.wait_until_standbys_lead(names)
    pause_s = longest_pause_s(steps.all(), begin_s, time.time())
    system.restore(names)
    return pause_s


def longest_pause_s(steps: Sequence[Committed], begin_s: float, end_s: float) -> float:
    """The longest time between two steps of any worker at work; one that lasts at the end counts, too.

    Seconds since the epoch. Raises SystemExit when not all workers have made a step since the beginning.
    """
    made_s: dict[int, list[float]] = {}
    for step in steps:
        made_s.setdefault(step.pid, []).append(step.at_s)
    at_work = [times for times in made_s.values() if times[-1] > begin_s]
    if len(at_work) < WORKERS:
        raise SystemExit(f"only {len(at_work)} of {WORKERS} workers made a step after leaders were lost")
    return max(
        after - before
        for times in at_work
        for before, after in pairwise([*times, end_s])
        if before < end_s and after > begin_s
    )


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

    def until_ended(self) -> None:
        """Reads what is left."""
        for _ in self._next():
            pass

    def _next(self) -> Iterator[JobEvent]:
        for event in self._events:
            if isinstance(event, GenerationFormed):
                self._workers = {worker.id for worker in event.workers}
            yield event
