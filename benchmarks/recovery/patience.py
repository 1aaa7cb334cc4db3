"""False alarms: a healthy job beside processes that keep every core busy. 10 minutes for the record."""

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.intervals import EXACT
from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.recovery.running_job import RunningJob, running_job
from benchmarks.recovery.small_model import WORKERS


def run(quick: bool) -> list[Measurement]:
    seconds = 15.0 if quick else float(os.environ.get("PATIENCE_SECONDS", "600"))
    with running_job() as running, busy_cores():
        running.wait_until_full()
        begin_s = time.time()
        time.sleep(seconds)
        alarms = count_alarms(running, begin_s)
        steps = running.steps_between(begin_s, begin_s + seconds)
    what = f"{seconds:.0f} s of a healthy job on busy cores"
    return [
        measurement(
            f"false alarms in {what}", "alarms", [alarms], statistic=EXACT, goal=Goal(0, at_least=False)
        ),
        measurement(f"committed steps in {what}", "steps", [steps], statistic=EXACT),
    ]


def count_alarms(running: RunningJob, begin_s: float) -> int:
    """Generations without all workers, and workers that were lost."""
    late = running.after(begin_s)
    smaller = [one for one in late if one.kind == "GenerationFormed" and len(one.workers) < WORKERS]
    return len(smaller) + sum(1 for one in late if one.kind == "WorkerLost")


@contextmanager
def busy_cores() -> Iterator[None]:
    """One process a core that never rests."""
    context = multiprocessing.get_context("spawn")
    busy = [context.Process(target=_spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.terminate()
            process.join()


def _spin() -> None:
    while True:
        pass
