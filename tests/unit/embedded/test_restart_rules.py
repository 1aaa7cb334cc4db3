"""When a child process is started again, and when the system gives up."""

from hypothesis import given
from hypothesis import strategies as st

from peerloom.embedded.rules import (
    FIRST_DELAY_S,
    LONGEST_DELAY_S,
    RESTART_LIMIT,
    RESTART_WINDOW_S,
    GiveUp,
    Restart,
    decide_restart,
)


def test_the_first_end_is_followed_by_a_quick_restart() -> None:
    decision = decide_restart([100.0], 100.0, -9)
    assert decision == Restart(0.1, "it was killed by signal 9 (end 1 of 5 allowed in 60 s)")


def test_the_pause_doubles_with_each_end_within_the_window() -> None:
    ends = [100.0, 101.0, 102.0, 103.0, 104.0]
    delays = [decide_restart(ends[: n + 1], ends[n], 1) for n in range(5)]
    assert [d.delay_s for d in delays if isinstance(d, Restart)] == [0.1, 0.2, 0.4, 0.8, 1.6]


def test_the_sixth_end_within_a_minute_is_the_last() -> None:
    ends = [0.0, 10.0, 20.0, 30.0, 40.0, 59.0]
    assert decide_restart(ends, 59.0, 2) == GiveUp("it ended with status 2, for the 6th time within 60 s")


def test_an_end_of_a_minute_ago_is_forgotten() -> None:
    ends = [0.0, 10.0, 20.0, 30.0, 40.0, 60.0]
    decision = decide_restart(ends, 60.0, 2)
    assert isinstance(decision, Restart)
    assert decision.delay_s == 1.6


@given(st.lists(st.floats(0, 600), min_size=1, max_size=30))
def test_it_gives_up_only_for_more_ends_in_the_window_than_are_allowed(ends: list[float]) -> None:
    ends.sort()
    decision = decide_restart(ends, ends[-1], 1)
    in_window = len([end for end in ends if ends[-1] - end < RESTART_WINDOW_S])
    assert isinstance(decision, GiveUp) == (in_window > RESTART_LIMIT)
    if isinstance(decision, Restart):
        assert FIRST_DELAY_S <= decision.delay_s <= LONGEST_DELAY_S
