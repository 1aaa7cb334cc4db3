"""What a newcomer's entry costs those in training, out of a job's committed steps; pure functions.

    cost = sum over i from 1 - BEFORE to AFTER of (t_i - m),    m = median of t_i, i from AFTER + 1 on

Step 1 is the first that the newcomer takes part in, t_i the seconds from the commit of the step before to
that of step i. The UNDISTURBED steps of m come after the window, as those before it share the cores with a
newcomer that starts. A sum of so few steps is off by chance to both sides, thus also negative: the same sum
over a later window of the same generation, which nobody enters, says by how much.
"""

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.recovery.running_job import Seen

BEFORE, AFTER, UNDISTURBED = 3, 12, 20
WINDOW = BEFORE + AFTER
# What the generation has to make for both windows, that of the entry and the one that nobody enters.
STEPS_NEEDED = AFTER + UNDISTURBED + WINDOW + UNDISTURBED


@dataclass(frozen=True)
class Step:
    """Seconds since the commit of the step before, and those that rank 0 spent in it."""

    gap_s: float
    step_s: float


@dataclass(frozen=True)
class Stretch:
    """WINDOW steps, and the UNDISTURBED ones after them."""

    steps: Sequence[Step]

    @property
    def undisturbed_s(self) -> float:
        """The median step of this moment, s."""
        return statistics.median(step.gap_s for step in self.steps[WINDOW:])

    @property
    def cost_s(self) -> float:
        """By how much the window took longer than as many undisturbed steps, s; below 0 by chance."""
        return sum(step.gap_s - self.undisturbed_s for step in self.steps[:WINDOW])


@dataclass(frozen=True)
class Entry:
    """The steps around the entry of a newcomer, and later ones of the same generation."""

    around: Stretch
    control: Stretch


def entries_of(events: Sequence[Seen]) -> list[Entry]:
    """One for each generation that gained members, lost none, and made STEPS_NEEDED steps before the next."""
    committed = {event.step: event for event in events if event.kind == "StepCommitted"}
    formed = [event for event in events if event.kind == "GenerationFormed"]
    ends = [*(one.step for one in formed[1:]), max(committed, default=0)]
    found = []
    for (before, after), end in zip(itertools.pairwise(formed), ends[1:], strict=True):
        numbers = range(after.step - BEFORE, after.step + STEPS_NEEDED + 1)
        told = [committed[number] for number in numbers if number in committed]
        if set(before.workers) < set(after.workers) and len(told) == len(numbers) and numbers[-1] <= end:
            found.append(_entry(told))
    return found


def _entry(told: Sequence[Seen]) -> Entry:
    steps = [Step(second.at_s - first.at_s, second.step_s) for first, second in itertools.pairwise(told)]
    length = WINDOW + UNDISTURBED
    return Entry(Stretch(steps[:length]), Stretch(steps[length:]))
