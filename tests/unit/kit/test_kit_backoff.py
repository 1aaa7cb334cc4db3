"""The pauses between attempts: doubled, bounded, drawn, and begun anew after a success."""

import pytest

from peerloom.kit.backoff import Backoff


def test_pauses_double_up_to_the_ceiling() -> None:
    backoff = Backoff(0.1, 1.0, chance=lambda: 1.0)
    pauses_s = [backoff.next_pause_s() for _ in range(6)]
    assert pauses_s == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_pause_is_at_least_half_and_at_most_all_of_its_turn() -> None:
    assert Backoff(0.4, 9.0, chance=lambda: 0.0).next_pause_s() == pytest.approx(0.2)
    assert Backoff(0.4, 9.0, chance=lambda: 0.5).next_pause_s() == pytest.approx(0.3)


def test_a_small_growth_keeps_each_pause_a_small_part_of_the_time_since_the_first() -> None:
    backoff, since_s = Backoff(0.1, 2.0, chance=lambda: 1.0, growth=1.03), 0.0
    while (pause_s := backoff.next_pause_s()) < 2.0:
        assert pause_s == pytest.approx(0.1 + 0.03 * since_s)
        since_s += pause_s
    assert since_s == pytest.approx((2.0 - 0.1) / 0.03, rel=0.05)


def test_a_success_begins_anew() -> None:
    backoff = Backoff(0.1, 1.0, chance=lambda: 1.0)
    for _ in range(4):
        backoff.next_pause_s()
    backoff.succeeded()
    assert backoff.next_pause_s() == pytest.approx(0.1)


def test_thousands_of_failures_stay_at_the_ceiling() -> None:
    backoff = Backoff(0.1, 2.0, chance=lambda: 1.0)
    for _ in range(5000):
        last_s = backoff.next_pause_s()
    assert last_s == 2.0
