"""The pause of training when a newcomer joins: with short steps, and with longer ones."""

import signal
import statistics

from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.recovery.running_job import STEPS_BEFORE_ENTRY, running_job
from benchmarks.recovery.series import recovery_times, signal_worker


def run(quick: bool) -> list[Measurement]:
    count = 3 if quick else 20
    return [*_pauses("Small", count), *_pauses("Large", count)]


def _pauses(task: str, count: int) -> list[Measurement]:
    """Workers are killed one after the other; each is replaced by a newcomer."""
    with running_job(task) as running:
        recovery_times(running, count, signal_worker(signal.SIGKILL))
        running.wait_until_full()
        stops = running.stops_at_joins()
    step_ms = 1e3 * statistics.median(step_s for _, step_s in stops)
    what = f"longest pause around a newcomer's entry, steps of {step_ms:.0f} ms"
    pauses = [max(0.0, pause_s - step_s) for pause_s, step_s in stops]
    steps = [pause_s / step_s for pause_s, (_, step_s) in zip(pauses, stops, strict=True)]
    return [
        measurement(f"{what}, in steps", "steps", steps, goal=Goal(1, at_least=False)),
        measurement(f"{what}, in time", "s", pauses),
    ]


def profile_one() -> str:
    """The steps around the entries of ten newcomers: medians, in milliseconds."""
    with running_job("Small") as running:
        recovery_times(running, 10, signal_worker(signal.SIGKILL))
        running.wait_until_full()
        entries = running.steps_around_joins()
    lines = []
    for number, pairs in enumerate(zip(*entries, strict=True), start=1 - STEPS_BEFORE_ENTRY):
        gap_ms, step_ms = (1e3 * statistics.median(times_s) for times_s in zip(*pairs, strict=True))
        when = "entry" if number == 1 else "     "
        lines.append(
            f"{when} step {number:+d}: {gap_ms:6.1f} ms after the one before, {step_ms:6.1f} ms in the step"
        )
    return "\n".join([f"the steps around {len(entries)} entries of a newcomer, medians", "", *lines, ""])
