"""What the takeover's benchmark makes of the steps that workers noted."""

import pytest

from benchmarks.recovery.steps_file import Committed
from benchmarks.takeover import longest_pause_s

BEGIN_S, END_S = 10.0, 14.0


def noted(pid: int, *at_s: float) -> list[Committed]:
    return [Committed(pid, each, step, 1) for step, each in enumerate(at_s, 1)]


def test_the_longest_pause_is_that_of_any_worker_at_work() -> None:
    """9.9 to 10.5 has its end in the time, 10.5 to 13 is in it, 7 to 9.9 and 14.1 to 18 are not."""
    others = noted(2, 9.9, 11.0, 12.0, 13.0, 14.1) + noted(3, 9.0, 10.1, 12.0, 14.1)
    steps = noted(1, 7.0, 9.9, 10.5, 13.0, 14.1, 18.0) + others
    assert longest_pause_s(steps, BEGIN_S, END_S) == 2.5


def test_a_worker_that_made_no_step_until_the_end_has_paused_until_then() -> None:
    steps = noted(1, 9.9, 10.25) + noted(2, 9.9, 12.0, 14.1) + noted(3, 9.9, 12.0, 14.1)
    assert longest_pause_s(steps, BEGIN_S, END_S) == 3.75


def test_workers_that_all_stand_still_are_no_figure() -> None:
    """A worker that was killed before, the fourth, isn't missed."""
    steps = noted(1, 9.9, 10.25) + noted(2, 9.9, 12.0) + noted(3, 9.0, 9.9) + noted(4, 1.0, 2.0)
    with pytest.raises(SystemExit, match="only 2 of 3 workers made a step"):
        longest_pause_s(steps, BEGIN_S, END_S)
