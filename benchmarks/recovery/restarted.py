"""SIGKILL of a worker soon after trainer, selector and registry were killed and started again.

The supervisor of an embedded system starts them, and the worker is struck at a moment up to three seconds
after the trainer answers again, while all three still warm up. One struck together with them is missed when
there is a trainer again: that time is mostly the restart, and has no goal.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence

from benchmarks.measure import Measurement, measurement
from benchmarks.recovery.running_job import running_system
from benchmarks.recovery.series import recovery_time, signal_worker, told
from benchmarks.recovery.small_model import WORKERS
from peerloom.embedded import Embedded
from peerloom.embedded.health import Prober

COORDINATORS = ("trainer", "selector", "registry")
MOMENTS_S = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0)
RESTARTS_A_SYSTEM = 4  # its supervisor gives up at the sixth within a minute
POLL_S, RESTART_LIMIT_S = 0.02, 60.0
WHAT = "to the survivors' next committed step"


def run(quick: bool) -> list[Measurement]:
    moments = MOMENTS_S[:2] if quick else MOMENTS_S
    parts = [moments[i : i + RESTARTS_A_SYSTEM] for i in range(0, len(moments), RESTARTS_A_SYSTEM)]
    times_s = [time_s for part in parts for time_s in _recovery_times(part)]
    together_s = list(_recovery_times([None] * (1 if quick else RESTARTS_A_SYSTEM)))
    after = f"from SIGKILL of a worker, up to {moments[-1]:g} s after the coordinators' restart, {WHAT}"
    together = f"from SIGKILL of a worker and all coordinators {WHAT}, with their restart"
    return [*told(after, times_s, None, 0.5), measurement(together, "s", together_s)]


def _recovery_times(moments_s: Sequence[float | None]) -> Iterator[float]:
    """Kills so long after each of several restarts of one system; None: together with the coordinators."""
    kill = signal_worker(signal.SIGKILL)
    with running_system() as (running, system):
        for number, moment_s in enumerate(moments_s):
            worker, node = running.wait_until_full().workers[number % WORKERS]
            trainer = system.pids["trainer"]
            for name in COORDINATORS:
                os.kill(system.pids[name], signal.SIGKILL)
            if moment_s is not None:
                _wait_for_trainer(system, trainer)
                time.sleep(moment_s)
            time_s = recovery_time(running, worker, node, kill)
            when = "together" if moment_s is None else f"{moment_s:g} s after the restart"
            print(f"   {when}: rank {number % WORKERS}, {1000 * time_s:.0f} ms", flush=True)
            yield time_s


def _wait_for_trainer(system: Embedded, before: int) -> None:
    """Returns when another trainer than that of this pid answers. Raises SystemExit when none does."""
    deadline_s = time.monotonic() + RESTART_LIMIT_S
    while time.monotonic() < deadline_s:
        with Prober() as prober:  # a new channel each time: a known one waits between its tries
            if (
                system.pids["trainer"] != before
                and prober.health(system.addresses["trainer"]) != "UNREACHABLE"
            ):
                return
        time.sleep(POLL_S)
    raise SystemExit(f"the trainer did not come back within {RESTART_LIMIT_S:.0f} s")
