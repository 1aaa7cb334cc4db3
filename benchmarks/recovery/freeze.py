"""SIGSTOP of a worker, which wakes up later and joins again."""

import signal

from benchmarks.measure import Measurement
from benchmarks.recovery.running_job import running_job
from benchmarks.recovery.series import recovery_times, signal_worker, told


def run(quick: bool) -> list[Measurement]:
    with running_job() as running:
        strike = signal_worker(signal.SIGSTOP, undo=signal.SIGCONT)
        times = recovery_times(running, 3 if quick else 20, strike)
    return told("from SIGSTOP of a worker to the others' next committed step", times, None, 1.5)
