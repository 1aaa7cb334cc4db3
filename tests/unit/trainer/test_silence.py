"""How long a silence is normal, computed by hand, and the pulse of one worker."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.services.trainer.silence import CEILING_S, FLOOR_S, UNKNOWN_S, Pulse, silence_limit


def test_steady_beats_earn_the_floor() -> None:
    assert silence_limit(deque([0.1] * 50)) == FLOOR_S


def test_a_busy_machine_earns_more_patience() -> None:
    """Half 0.1 s and half 0.5 s: mean 0.3, deviation 0.2, so 0.3 + 8 * 0.2 = 1.9 s."""
    assert silence_limit(deque([0.1, 0.5] * 20)) == pytest.approx(1.9)


def test_before_enough_intervals_the_limit_is_generous() -> None:
    assert silence_limit(deque([0.1] * 9)) == UNKNOWN_S


@given(st.lists(st.floats(0, 1000), max_size=200))
def test_the_limit_is_always_bounded(intervals: list[float]) -> None:
    assert FLOOR_S <= silence_limit(deque(intervals)) <= CEILING_S


def test_silence_counts_from_the_last_beat_and_not_while_the_line_is_broken() -> None:
    pulse = Pulse()
    assert pulse.quiet_at_s() is None
    for beat in range(20):
        pulse.beat(beat * 0.1)
    assert pulse.quiet_at_s() == pytest.approx(1.9 + FLOOR_S)
    pulse.stop()
    assert pulse.quiet_at_s() is None
    pulse.beat(50.0)
    assert pulse.quiet_at_s() == pytest.approx(50.0 + FLOOR_S)


def test_a_pause_of_our_own_is_not_held_against_the_worker() -> None:
    pulse = Pulse()
    for beat in range(20):
        pulse.beat(beat * 0.1)
    pulse.restart(30.0)
    assert pulse.quiet_at_s() == pytest.approx(30.0 + FLOOR_S)
