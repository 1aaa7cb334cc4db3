"""What is kept of the throughput under one fault every 30 s, beside what was made just before and after it.

The machine's own speed drifts by a tenth within minutes, more than a fault costs: so each window with a fault
stands between two without, and is compared with the mean of these. The rivals' killed workers are started
again at once, as by a supervisor. What torchrun's survivors had done since a checkpoint counts as kept, which
it would not be.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

import psutil

from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.recovery.rival_jobs import RivalJob, torchft, torchrun
from benchmarks.recovery.rivals import NIGHTLY
from benchmarks.recovery.running_job import process_of, running_job
from benchmarks.recovery.small_model import WORKERS


@dataclass(frozen=True)
class Side:
    """A job in training, waited for until it has its full strength; last_words tells why it hasn't again."""

    wait_until_full: Callable[[], bool]
    kill: Callable[[int], None]
    steps_between: Callable[[float, float], int]
    last_words: Callable[[], str]


def run(quick: bool) -> list[Measurement]:
    faults, rivals_faults, window_s = (1, 1, 6.0) if quick else (9, 5, 30.0)
    name = f"throughput kept under one killed worker each {window_s:.0f} s"
    sides: list[tuple[str, Callable[[], AbstractContextManager[Side]]]] = [
        (
            "torchft-nightly tuned (join 0.2 s, collectives 1 s)",
            partial(_rival, partial(torchft, NIGHTLY, 200, 1)),
        ),
        ("torchft-nightly as in its example", partial(_rival, partial(torchft, NIGHTLY, 2000, 5))),
        ("torchrun elastic, its store unshared", partial(_rival, partial(torchrun, True, rivals_faults + 1))),
    ]
    with _ours() as ours:
        kept = _kept(ours, faults, window_s)
    return [_beside(name, kept, rival, opened, rivals_faults, window_s) for rival, opened in sides]


def _beside(
    name: str,
    ours: list[float],
    rival: str,
    opened: Callable[[], AbstractContextManager[Side]],
    faults: int,
    window_s: float,
) -> Measurement:
    """Ours beside one rival; why that one did not come back from all faults is told beside its name."""
    print(f"   {rival}", flush=True)
    kept, end = list[float](), ""
    try:
        with opened() as side:
            kept = _kept(side, faults, window_s)
            if len(kept) < faults:
                end = f"; after {len(kept)} of {faults} faults it did not come back: {side.last_words()}"
    except subprocess.CalledProcessError as error:
        end = f"; could not be installed: {str(error.stderr).strip().splitlines()[-1][:200]}"
    beside = f"{name}, beside {rival.split(' (')[0].split(',')[0]}"
    goal = Goal(0.977, at_least=True)
    return measurement(beside, "of 1", ours, goal=goal, rival=f"{rival}{end}", rival_samples=kept)


def _kept(side: Side, faults: int, window_s: float) -> list[float]:
    """For each fault after which the job was whole again, the rate with it over the mean beside it."""
    kept = list[float]()
    before = _rate(side, window_s / 2) if side.wait_until_full() else 0.0
    while before and len(kept) < faults:
        side.kill(len(kept))
        disturbed = _rate(side, window_s)
        if not side.wait_until_full():
            break
        after = _rate(side, window_s / 2)
        kept.append(disturbed / ((before + after) / 2))
        print(f"   {before:.1f} steps/s, {disturbed:.1f} with a fault, then {after:.1f}", flush=True)
        before = after if side.wait_until_full() else 0.0
    return kept


def _rate(side: Side, window_s: float) -> float:
    """Committed steps a second from now on."""
    begin_s = time.time()
    time.sleep(window_s)
    return side.steps_between(begin_s, begin_s + window_s) / window_s


@contextmanager
def _ours() -> Iterator[Side]:
    with running_job() as running:

        def kill(number: int) -> None:
            worker, _ = running.wait_until_full().workers[number % WORKERS]
            process_of(worker).kill()

        def is_full() -> bool:
            running.wait_until_full()
            return True

        yield Side(is_full, kill, running.steps_between, str)


@contextmanager
def _rival(opened: Callable[[], AbstractContextManager[RivalJob]]) -> Iterator[Side]:
    with opened() as job:

        def kill(number: int) -> None:
            victim = job.members()[number % WORKERS]
            psutil.Process(victim).kill()
            if job.restart is not None:
                job.restart(victim)

        yield Side(job.wait_until_full, kill, job.steps_between, job.last_words)
