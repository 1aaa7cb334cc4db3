"""SIGKILL of a worker."""

import signal
import time

from benchmarks.measure import Measurement
from benchmarks.recovery.running_job import process_of, running_job
from benchmarks.recovery.series import FROM_KILL, recovery_times, signal_worker, told


def run(quick: bool) -> list[Measurement]:
    with running_job() as running:
        times = recovery_times(running, 5 if quick else 50, signal_worker(signal.SIGKILL))
    return told(FROM_KILL, times, 0.1, 0.25)


def profile_one() -> str:
    """The events from one kill to the first steps after it, in milliseconds."""
    with running_job() as running:
        worker, _ = running.wait_until_full().workers[0]
        process = process_of(worker)
        begin_s = time.time()
        process.kill()
        running.wait_for("step after the fault", lambda: running.recovered_at_s(worker, begin_s) is not None)
        events = running.after(begin_s)[:12]
    lines = [f"{1000 * (event.at_s - begin_s):8.1f} ms  {event.kind} {event.text}" for event in events]
    return "\n".join(["one killed worker, time since the signal", "", *lines, ""])
