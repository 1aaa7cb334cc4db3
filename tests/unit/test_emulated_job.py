"""When a benchmark's job is broken off since its steps are too slow, by hand."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NoReturn, cast

import pytest

from benchmarks.committed import committed_steps
from benchmarks.emulated_job import too_slow
from peerloom.client.jobs import JobHandle
from peerloom.client.types import JobEvent, StateChanged, StepCommitted

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def step(number: int, at_s: float) -> StepCommitted:
    at = BEGAN + timedelta(seconds=at_s)
    return StepCommitted(number, "job-1", at, number, 10, 1, 0.5, 4, 40.0, 0.1, 0.08, 0.02, 100)


class PlayedJob:
    """Makes ten steps, each 0.2 s after the one before, or ends one step after it was cancelled."""

    def __init__(self) -> None:
        self.cancels = 0

    def watch(self) -> Iterator[JobEvent]:
        made = 0
        while made < 10 and not (self.cancels and made > 4):
            made += 1
            yield step(made, 0.2 * made)
        ending = "cancelled" if self.cancels else "succeeded"
        yield StateChanged(made + 1, "job-1", BEGAN, ending, "")

    def cancel(self) -> None:
        self.cancels += 1

    def status(self) -> NoReturn:
        raise AssertionError("nothing of a job that ended as it should is asked for")


@pytest.mark.parametrize(
    ("at_s", "at_most_ms", "found"),
    [
        ([5.0], 1.0, False),  # the warm-up's last: no step has been timed
        ([5.0, 5.25, 5.5, 5.75], 250.0, False),
        ([5.0, 5.25, 5.5, 5.76], 250.0, True),
        ([5.0, 5.3, 5.6], 250.0, False),  # two of them say little
        ([5.0, 5.7], 250.0, False),
        ([5.0, 5.8], 250.0, True),  # three may take 750 ms, and one took 800
        ([5.0, 5.3, 5.6, 5.8, 6.0], 250.0, False),
        ([5.0, 5.3, 5.6, 5.8, 6.05], 250.0, True),
    ],
)
def test_steps_are_judged_by_three_or_by_what_three_may_take(
    at_s: list[float], at_most_ms: float, found: bool
) -> None:
    assert too_slow([step(number, at) for number, at in enumerate(at_s)], at_most_ms) == found


@pytest.mark.parametrize(("at_most_ms", "made", "cancels"), [(100.0, 5, 1), (300.0, 10, 0)])
def test_a_slow_job_is_cancelled_once_and_its_steps_are_kept(
    at_most_ms: float, made: int, cancels: int
) -> None:
    """At 100 ms a step the third comes too late, 400 ms after the first, and two more follow it."""
    job = PlayedJob()
    steps = committed_steps(cast(JobHandle, job), enough=lambda steps: too_slow(steps, at_most_ms))
    assert (len(steps), job.cancels) == (made, cancels)
