"""Faults of a rival's job, one after the other, and in its own words why there were no more.

A rival whose workers all begin anew has recovered with the first step of a new process; one whose survivors
go on, with the first step of a smaller group.
"""

import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import psutil

from benchmarks.recovery.rival_jobs import RivalJob
from benchmarks.recovery.small_model import WORKERS
from benchmarks.recovery.steps_file import Committed

Open = Callable[[], AbstractContextManager[RivalJob]]


@dataclass
class Recoveries:
    """Seconds from each fault to the next step; `end` is "" when it came back from all."""

    times: list[float] = field(default_factory=list)
    end: str = ""


def recoveries(opened: Open, number: signal.Signals, count: int) -> Recoveries:
    """Those of `count` faults of a job that is opened for them; of fewer where it doesn't come back."""
    found = Recoveries()
    try:
        with opened() as job:
            while len(found.times) < count and not found.end:
                taken_s = _recovery_time(job, number, len(found.times))
                if taken_s is None:
                    found.end = f"; then: {job.last_words()}"
                else:
                    found.times.append(taken_s)
    except subprocess.CalledProcessError as error:
        found.end = not_installed(error)
    return found


def not_installed(error: subprocess.CalledProcessError) -> str:
    """The installer's last words."""
    return f"; could not be installed: {str(error.stderr).strip().splitlines()[-1][:200]}"


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
