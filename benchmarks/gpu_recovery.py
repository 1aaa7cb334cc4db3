"""How soon a job on GPUs goes on after a worker is killed.

Run by `make bench-gpu`, on a machine with one: SIGKILL among 5 workers of a small model over NCCL, beside
torchrun elastic, which starts all of them anew. Where there are fewer cards they share them, on both sides.
"""

import signal
from functools import partial

from benchmarks.gpu import lend_cards
from benchmarks.measure import Measurement, measurement
from benchmarks.recovery.rival_faults import recoveries
from benchmarks.recovery.rival_jobs import torchrun
from benchmarks.recovery.running_job import running_job
from benchmarks.recovery.series import FROM_KILL, recovery_times, signal_worker, told
from benchmarks.recovery.small_model import WORKERS

WHAT = f"{FROM_KILL}, over NCCL"


def run(quick: bool) -> list[Measurement]:
    """Kills of one job of ours, then of one of torchrun's."""
    lend_cards(WORKERS)
    with running_job(backend="nccl") as running:
        times = recovery_times(running, 2 if quick else 6, signal_worker(signal.SIGKILL))
    found = recoveries(partial(torchrun, False, backend="nccl"), signal.SIGKILL, 1 if quick else 2)
    rival = f"torchrun elastic --max-restarts=3, NCCL{found.end}"
    return [
        *told(WHAT, times, None, 1.0),
        measurement(f"{WHAT}, beside torchrun", "s", times, rival=rival, rival_samples=found.times),
    ]


def profile(quick: bool) -> str:
    """Nothing beyond the times."""
    return ""
