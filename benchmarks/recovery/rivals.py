"""The same faults under torchrun elastic and torchft, on the same machine in the same run.

A rival whose workers all begin anew has recovered with the first step of a new process; one whose survivors
go on, with the first step of a smaller group. What doesn't come back within 60 s, or can't be installed, is
told in the measurement's name, in the rival's own words.
"""

import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import psutil

from benchmarks.measure import Measurement, measurement
from benchmarks.recovery.rival_jobs import RivalJob, torchft, torchrun
from benchmarks.recovery.small_model import WORKERS
from benchmarks.recovery.steps_file import Committed

NIGHTLY, STABLE = "torchft-nightly", "torchft==0.2.0"
Open = Callable[[], AbstractContextManager[RivalJob]]


def run(quick: bool) -> list[Measurement]:
    few, many = (1, 1) if quick else (3, 6)
    kill, stop = signal.SIGKILL, signal.SIGSTOP
    plan: list[tuple[str, Open, signal.Signals, int]] = [
        ("torchrun elastic --max-restarts=3", partial(torchrun, False), kill, few),
        ("torchrun elastic, its store unshared", partial(torchrun, True), kill, few),
        (
            "torchft-nightly as in its example (join 2 s, collectives 5 s)",
            partial(torchft, NIGHTLY, 2000, 5),
            kill,
            many,
        ),
        (
            "torchft-nightly tuned (join 0.2 s, collectives 1 s)",
            partial(torchft, NIGHTLY, 200, 1),
            kill,
            many,
        ),
        ("torchft-nightly as in its example", partial(torchft, NIGHTLY, 2000, 5), stop, few),
        ("torchft 0.2.0 as in its example", partial(torchft, STABLE, 2000, 5), kill, few),
    ]
    measured = []
    for name, opened, number, count in plan:
        print(f"   {name}, {number.name}", flush=True)
        measured += _measure(f"{name}, {number.name}", opened, number, count)
    return measured


def _measure(name: str, opened: Open, number: signal.Signals, count: int) -> list[Measurement]:
    times, end = list[float](), ""
    try:
        with opened() as job:
            while len(times) < count and not end:
                taken_s = _recovery_time(job, number, len(times))
                if taken_s is None:
                    end = f"; then: {job.last_words()}"
                else:
                    times.append(taken_s)
    except subprocess.CalledProcessError as error:
        end = f"; could not be installed: {str(error.stderr).strip().splitlines()[-1][:200]}"
    survived = measurement(f"{name}: faults it came back from, of {count}{end}", "faults", [len(times)])
    return [survived, *([measurement(f"{name}: to the next step", "s", times)] if times else [])]


def _recovery_time(job: RivalJob, number: signal.Signals, fault: int) -> float | None:
    if not job.wait_until_full():
        return None
    before = job.members()
    victim = psutil.Process(before[fault % WORKERS])
    begin_s = time.time()
    victim.send_signal(number)

    def first_after(steps: list[Committed]) -> Committed | None:
        late = (one for one in steps if one.at_s > begin_s)
        return next((one for one in late if one.pid not in before or one.members < WORKERS), None)

    found = job.wait_for(first_after)
    if found is None:
        return None
    if number == signal.SIGSTOP:
        victim.kill()
    if job.restart is not None:
        job.restart(victim.pid)
    return found.at_s - begin_s
