"""What a newcomer's entry costs those in training, in seconds: with short steps, and with longer ones.

Workers are killed one after the other, and each is replaced by a newcomer. The cost is what the steps around
its entry take longer than as many undisturbed ones (entries.py has the formula); beside it stands what the
same sum gives where nobody enters.
"""

import statistics

from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.recovery.entries import BEFORE, STEPS_NEEDED, WINDOW, Entry, entries_of
from benchmarks.recovery.running_job import running_job
from benchmarks.recovery.series import replace_workers

COST_S = 0.02
LENGTHS = {"Small": "short steps", "Large": "long steps"}


def run(quick: bool) -> list[Measurement]:
    return [one for task in LENGTHS for one in _costs(LENGTHS[task], _entries(task, 3 if quick else 20))]


def _entries(task: str, count: int) -> list[Entry]:
    with running_job(task) as running:
        for number in replace_workers(running, count, STEPS_NEEDED):
            print(f"   {number} of {count} newcomers", flush=True)
        return entries_of(running.events)


def _costs(steps: str, entries: list[Entry]) -> list[Measurement]:
    costs_s = [one.around.cost_s for one in entries]
    controls_s = [one.control.cost_s for one in entries]
    steps_ms = [1e3 * one.around.undisturbed_s for one in entries]
    goal = Goal(COST_S, at_least=False)
    return [
        measurement(f"what a newcomer's entry costs the others, {steps}", "s", costs_s, goal=goal),
        measurement(f"what the same sum gives where nobody enters, {steps}", "s", controls_s),
        measurement(f"an undisturbed step beside a newcomer's entry, {steps}", "ms", steps_ms),
    ]


def profile_one() -> str:
    """The steps around the entries of ten newcomers: medians, in milliseconds."""
    entries = _entries("Small", 10)
    base_ms = 1e3 * statistics.median(one.around.undisturbed_s for one in entries)
    lines = [
        f"the steps around {len(entries)} entries of a newcomer, medians; undisturbed: {base_ms:.1f} ms",
        "",
    ]
    for place in range(WINDOW):
        steps = [one.around.steps[place] for one in entries]
        gap_ms, step_ms = (
            1e3 * statistics.median(times_s)
            for times_s in zip(*((step.gap_s, step.step_s) for step in steps), strict=True)
        )
        number = place + 1 - BEFORE
        when = "entry" if number == 1 else "     "
        lines.append(
            f"{when} step {number:+d}: {gap_ms:6.1f} ms after the one before, {step_ms:6.1f} ms in the step"
        )
    return "\n".join([*lines, ""])
