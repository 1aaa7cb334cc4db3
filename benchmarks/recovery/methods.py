"""SIGKILL of a worker under other ways to synchronise than the default: no time may depend on the way.

A step of the default takes a few milliseconds, and so do the steps of a round, which is told as a whole: the
time to the next one that is committed has a round in it (`local-sgd` 16 steps, `diloco` 32).
"""

import signal

from benchmarks.measure import Measurement
from benchmarks.recovery.running_job import running_job
from benchmarks.recovery.series import FROM_KILL, recovery_times, signal_worker, told

METHODS = (
    *("bsp-a2a", "bsp-ps", "wfbp-ps", "mg-wfbp", "bytescheduler-ps", "bytescheduler-a2a"),
    *("topology=doubling", "codec=int4", "codec=powersgd:2", "local-sgd", "diloco", "ssp:2", "asp"),
)


def run(quick: bool) -> list[Measurement]:
    """A fresh system for each method; then all kills together."""
    measured, every = list[Measurement](), list[float]()
    for method in METHODS:
        print(f"   {method}", flush=True)
        with running_job(sync=method) as running:
            times = recovery_times(running, 2 if quick else 20, signal_worker(signal.SIGKILL))
        measured += told(f"{method}: {FROM_KILL}", times, None, 0.25)
        every += times
    return [*told(f"all {len(METHODS)} methods: {FROM_KILL}", every, None, 0.25), *measured]
