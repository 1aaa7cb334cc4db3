"""How long a silence is normal, computed by hand, and the heartbeat history of one worker."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.services.trainer.workers.failure_detector import (
    CEILING_S,
    FLOOR_S,
    UNKNOWN_S,
    HeartbeatHistory,
    suspicion_timeout_s,
)


def test_steady_beats_earn_the_floor() -> None:
    assert suspicion_timeout_s(deque([0.1] * 50)) == FLOOR_S


def test_a_busy_machine_earns_more_patience() -> None:
    """Half 0.1 s and half 0.5 s, but for the longest: mean 0.3, deviation 0.2, so 0.3 + 8 * 0.2 = 1.9 s."""
    assert suspicion_timeout_s(deque([0.1, 0.5] * 20 + [0.5] * 2)) == pytest.approx(1.9)


def test_a_few_long_pauses_are_no_habit_and_one_more_is() -> None:
    """Three of 120 are left out: 117 remain, of 0.2 s and one of 2.2 s: mean 0.2171, deviation 0.1841."""
    three = [0.2] * 39 + [3.0]
    assert suspicion_timeout_s(deque(three * 3)) == FLOOR_S
    assert suspicion_timeout_s(deque(three * 2 + [0.2] * 38 + [2.2, 3.0])) == pytest.approx(1.6900, abs=1e-3)


def test_before_enough_intervals_the_limit_is_generous() -> None:
    assert suspicion_timeout_s(deque([0.1] * 9)) == UNKNOWN_S


@given(st.lists(st.floats(0, 1000), max_size=200))
def test_the_limit_is_always_bounded(intervals: list[float]) -> None:
    assert FLOOR_S <= suspicion_timeout_s(deque(intervals)) <= CEILING_S


def test_silence_counts_from_the_last_beat_and_not_while_the_line_is_broken() -> None:
    history = HeartbeatHistory()
    assert history.quiet_at_s() is None
    for beat in range(20):
        history.beat(beat * 0.1)
    assert history.quiet_at_s() == pytest.approx(1.9 + FLOOR_S)
    history.stop()
    assert history.quiet_at_s() is None
    history.beat(50.0)
    assert history.quiet_at_s() == pytest.approx(50.0 + FLOOR_S)


def test_a_pause_of_our_own_is_not_held_against_the_worker() -> None:
    history = HeartbeatHistory()
    for beat in range(20):
        history.beat(beat * 0.1)
    history.restart(30.0)
    assert history.quiet_at_s() == pytest.approx(30.0 + FLOOR_S)
