"""Emulated computing takes as long as it is to, however late the system wakes who waits."""

import pytest

from peerloom.worker.tasks.punctual_waits import LONGEST_EXCESS_S, PunctualWaits


class LateClock:
    """A clock that moves by what is waited for, and by the next of these delays."""

    def __init__(self, *late_s: float) -> None:
        self.now_s, self.slept, self._late_s = 0.0, list[float](), list(late_s)

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds + self._late_s.pop(0)


def test_what_a_wait_took_too_long_the_next_ones_take_less() -> None:
    clock = LateClock(0.002, 0.001, 0.0)
    waits = PunctualWaits(clock, clock.sleep)
    for _ in range(3):
        waits.wait(0.010)
    assert clock.slept == pytest.approx([0.010, 0.008, 0.009])
    assert clock.now_s == pytest.approx(0.030)


def test_a_wait_that_is_shorter_than_the_excess_leaves_the_rest_to_the_next() -> None:
    clock = LateClock(0.005, 0.0)
    waits = PunctualWaits(clock, clock.sleep)
    for seconds in (0.010, 0.002, 0.010):
        waits.wait(seconds)
    assert clock.slept == pytest.approx([0.010, 0.007])
    assert clock.now_s == pytest.approx(0.022)


def test_what_is_very_late_stays_so() -> None:
    clock = LateClock(1.0, 0.0)
    waits = PunctualWaits(clock, clock.sleep)
    waits.wait(0.5)
    waits.wait(0.5)
    assert clock.slept == pytest.approx([0.5, 0.5 - LONGEST_EXCESS_S])
