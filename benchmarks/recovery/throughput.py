"""What is kept of the throughput under one fault every 30 s, beside what was made just before and after it.

The machine's own speed drifts by a tenth within minutes, more than a fault costs: so each window with a fault
stands between two without, and is compared with the mean of these.
"""

import itertools
import time

from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.recovery.running_job import RunningJob, process_of, running_job
from benchmarks.recovery.small_model import WORKERS


def run(quick: bool) -> list[Measurement]:
    faults, window_s = (1, 6.0) if quick else (9, 30.0)
    with running_job() as running:
        undisturbed = [_rate(running, window_s / 2)]
        disturbed = []
        for number in range(faults):
            worker, _ = running.wait_until_full().workers[number % WORKERS]
            process_of(worker).kill()
            disturbed.append(_rate(running, window_s))
            running.wait_until_full()
            undisturbed.append(_rate(running, window_s / 2))
            print(f"   {disturbed[-1]:.1f} steps/s with a fault, then {undisturbed[-1]:.1f}", flush=True)
    beside = [(before + after) / 2 for before, after in itertools.pairwise(undisturbed)]
    kept = [with_fault / without for with_fault, without in zip(disturbed, beside, strict=True)]
    goal = Goal(0.977, at_least=True)
    return [
        measurement(f"throughput kept under one killed worker each {window_s:.0f} s", "of 1", kept, goal=goal)
    ]


def _rate(running: RunningJob, window_s: float) -> float:
    """Committed steps a second from now on."""
    begin_s = time.time()
    time.sleep(window_s)
    return running.steps_between(begin_s, begin_s + window_s) / window_s
