"""A series of faults, spread over all ranks, and what the times to the next step come to."""

import signal
import time
from collections.abc import Callable, Iterator

from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.recovery.running_job import RunningJob, process_of
from benchmarks.recovery.small_model import WORKERS

RECOVERY_LIMIT_S = 60.0
FROM_KILL = "from SIGKILL of a worker to the survivors' next committed step"
# From a worker and its node to when it was struck (seconds since the epoch) and what undoes it.
Strike = Callable[[str, str], tuple[float, Callable[[], None]]]


def signal_worker(number: int, undo: int = 0) -> Strike:
    """Sends a worker's process a signal; undone by another."""

    def strike(worker: str, node: str) -> tuple[float, Callable[[], None]]:
        process = process_of(worker)
        begin_s = time.time()
        process.send_signal(number)
        return begin_s, (lambda: process.send_signal(undo)) if undo else (lambda: None)

    return strike


def recovery_times(running: RunningJob, count: int, strike: Strike) -> list[float]:
    """Seconds from each of `count` faults to the next step without the victim; rank after rank."""
    times = []
    for number in range(count):
        worker, node = running.wait_until_full().workers[number % WORKERS]
        times.append(recovery_time(running, worker, node, strike))
        print(f"   {number + 1} of {count}: rank {number % WORKERS}, {1000 * times[-1]:.0f} ms", flush=True)
    return times


def recovery_time(running: RunningJob, worker: str, node: str, strike: Strike) -> float:
    """Seconds from one fault to the next step without the victim."""
    begin_s, undo = strike(worker, node)

    def has_recovered() -> bool:
        return running.recovered_at_s(worker, begin_s) is not None

    running.wait_for("step after the fault", has_recovered, RECOVERY_LIMIT_S)
    recovered_s = running.recovered_at_s(worker, begin_s)
    assert recovered_s is not None, "it was just there"
    undo()
    return recovered_s - begin_s


def replace_workers(running: RunningJob, count: int, steps: int) -> Iterator[int]:
    """Kills one worker after the other; yields how many, once the newcomer has made so many `steps`."""
    kill = signal_worker(signal.SIGKILL)
    running.wait_for_steps(steps)
    for number in range(count):
        newest = running.generation
        assert newest is not None, "it has made steps"
        recovery_time(running, *newest.workers[number % WORKERS], kill)
        running.wait_for_steps(steps)
        yield number + 1


def told(what: str, times: list[float], p50_s: float | None, p95_s: float) -> list[Measurement]:
    """The two percentiles; all times are the samples of the first."""
    return [
        _percentile(what, times, 50, Goal(p50_s, at_least=False) if p50_s else None),
        _percentile(what, times, 95, Goal(p95_s, at_least=False)),
    ]


def _percentile(what: str, times: list[float], percent: int, goal: Goal | None) -> Measurement:
    name = f"{what}, p{percent} of {len(times)}"
    return measurement(name, "s", times, statistic=f"p{percent}", goal=goal)
