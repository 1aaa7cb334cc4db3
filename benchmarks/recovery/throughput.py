"""What is kept of the throughput under one fault every 30 s, from the seconds that one fault costs.

    lost_s = window_s * (1 - disturbed / mean(before, after)),    kept = 1 - lost_s / 30

`disturbed` is the rate of steps in a window that begins with a fault, `before` and `after` are those of the
undisturbed windows of half its length beside it. A window of 10 s says more than one of 30: what a fault
costs is in it, and the machine's own speed, which drifts by a tenth within minutes, has a third of the time
to do so. A job that has not had its full strength for 1.5 s when the window should end is waited for: that
window is longer, by its true length, so that nothing lost falls between windows. The mean of all faults
counts, as throughput is a sum.

Ours and the rivals run in turn, in blocks of a few faults; one system runs at a time. The rivals' killed
workers are started again at once, as by a supervisor. What torchrun's survivors had done since a checkpoint
counts as kept, which it would not be. torchft has the limits that the sweep of `rivals` found to be its best.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial

import psutil

from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.recovery.rival_faults import not_installed
from benchmarks.recovery.rival_jobs import NIGHTLY, RivalJob, torchft, torchrun
from benchmarks.recovery.running_job import process_of, running_job
from benchmarks.recovery.small_model import WORKERS
from benchmarks.recovery.torchft_limits import BEST

EACH_S = 30.0
LATE_S = 1.0  # after which all steps of the last window were told


@dataclass(frozen=True)
class Side:
    """A job in training, waited for until it has its full strength; last_words tells why it hasn't again."""

    wait_until_full: Callable[[], bool]
    kill: Callable[[int], None]
    steps_between: Callable[[float, float], int]
    last_words: Callable[[], str]


@dataclass
class Blocks:
    """How one system is opened, with how many faults each time, and what was kept at each of them."""

    title: str
    opened: Callable[[], AbstractContextManager[Side]]
    faults: int
    kept: list[float] = field(default_factory=list)
    end: str = ""


def run(quick: bool) -> list[Measurement]:
    rounds, faults, few, window_s = (1, 1, 1, 4.0) if quick else (5, 6, 2, 10.0)
    ours = Blocks("Peerloom", _ours, faults)
    rivals = [
        Blocks(f"torchft-nightly ({BEST})", partial(_rival, partial(torchft, NIGHTLY, BEST)), faults),
        Blocks(
            "torchrun elastic, its store unshared", partial(_rival, partial(torchrun, True, few + 1)), few
        ),
    ]
    for _ in range(rounds):
        for system in (ours, *rivals):
            _run_block(system, window_s)
    return [_beside(ours, rival, rounds, window_s) for rival in rivals]


def _beside(ours: Blocks, rival: Blocks, rounds: int, window_s: float) -> Measurement:
    name = rival.title.split(" (")[0].split(",")[0]
    missing = rounds * rival.faults - len(rival.kept)
    came_back = f"; {missing} of {rounds * rival.faults} faults are not among its samples" if missing else ""
    return measurement(
        f"throughput kept under one killed worker each {EACH_S:.0f} s, 1 - s lost by one / {EACH_S:.0f}, "
        f"in windows of {window_s:.0f} s, beside {name}",
        "of 1",
        ours.kept,
        statistic="mean",
        goal=Goal(0.977, at_least=True),
        rival=f"{rival.title}{came_back}{rival.end}",
        rival_samples=rival.kept,
    )


def _run_block(system: Blocks, window_s: float) -> None:
    """Opens the system for some faults; why it did not come back from all of them is told in its `end`."""
    print(f"   {system.title}", flush=True)
    try:
        with system.opened() as side:
            kept = _kept(side, system.faults, window_s)
            system.kept += kept
            if len(kept) < system.faults:
                system.end += f"; it did not come back: {side.last_words()}"
    except subprocess.CalledProcessError as error:
        system.end = not_installed(error)


def _kept(side: Side, faults: int, window_s: float) -> list[float]:
    """For each fault after which the job was whole again, what one each 30 s would leave."""
    moments = list[tuple[float, float, float, float]]()  # before from, struck, after from, until
    begin_s = time.time() if side.wait_until_full() else 0.0
    time.sleep(window_s / 2)
    while begin_s and len(moments) < faults and side.wait_until_full():
        struck_s = time.time()
        side.kill(len(moments))
        time.sleep(window_s)
        if not side.wait_until_full():
            break
        whole_s = time.time()
        time.sleep(window_s / 2)
        moments.append((begin_s, struck_s, whole_s, time.time()))
        begin_s = whole_s
    time.sleep(LATE_S)
    return [_kept_of(side, *one) for one in moments]


def _kept_of(side: Side, begin_s: float, struck_s: float, whole_s: float, end_s: float) -> float:
    def rate(from_s: float, until_s: float) -> float:
        return side.steps_between(from_s, until_s) / (until_s - from_s)

    before, disturbed, after = rate(begin_s, struck_s), rate(struck_s, whole_s), rate(whole_s, end_s)
    kept = kept_part(before, disturbed, after, whole_s - struck_s)
    told = (
        f"{before:.1f} steps/s, {disturbed:.1f} in {whole_s - struck_s:.1f} s with a fault, then {after:.1f}"
    )
    print(f"   {told}: {EACH_S * (1 - kept):.2f} s lost, {kept:.4f} kept", flush=True)
    return kept


def kept_part(before: float, disturbed: float, after: float, window_s: float) -> float:
    """What one fault each 30 s leaves of the throughput, by the rates (1/s) around one in a window."""
    lost_s = window_s * (1 - disturbed / ((before + after) / 2))
    return 1 - lost_s / EACH_S


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
