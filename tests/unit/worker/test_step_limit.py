"""How long a step may take, by hand."""

import math

import pytest

from peerloom.worker.loop import StepLimit


def limit_of(*steps_s: float) -> StepLimit:
    limit = StepLimit()
    for step_s in steps_s:
        limit.note(step_s)
    return limit


def test_nothing_is_expected_before_enough_steps() -> None:
    assert limit_of(*[0.01] * 19).limit_s() == math.inf


@pytest.mark.parametrize(
    ("step_s", "limit_s"),
    [(0.01, 5.0), (0.16, 5.0), (0.2, 10.0), (1.0, 40.0)],
)
def test_thirty_times_the_slowest_step_rounded_up_but_five_seconds_at_least(
    step_s: float, limit_s: float
) -> None:
    assert limit_of(*[step_s] * 20).limit_s() == limit_s


def test_one_slow_step_is_remembered_and_slowly_forgotten() -> None:
    assert limit_of(1.0, *[0.01] * 19).limit_s() == 40.0
    assert limit_of(1.0, *[0.01] * 500).limit_s() == 5.0
