"""How much ranks ask of each other while all ask all, and what rate its time shows: figures by hand."""

import math

import pytest

from peerloom.worker.measuring.together_probe import (
    FASTEST_BITS_PER_S,
    LEAST_BYTES,
    MOST_BYTES,
    answer_size,
    rate_together,
)


def test_answers_take_50_ms_or_a_round_trip_by_the_slowest_ranks_best_rate() -> None:
    """8 Mbit/s carry 50 kB in 50 ms and 320 kB in the 320 ms there and back, from four others."""
    assert answer_size([16e6, 8e6, 8e6, 9e6, 0.0], 0.001, 5) == 12_500
    assert answer_size([16e6, 8e6, 8e6, 9e6, 0.0], 0.16, 5) == 80_000


@pytest.mark.parametrize("rates", [[], [0.0, 0.0], [math.nan], [1.0, 1e9], [-5.0]])
def test_who_knows_nothing_or_little_asks_little(rates: list[float]) -> None:
    assert answer_size(rates, 0.1, 3) == LEAST_BYTES


@pytest.mark.parametrize("longest_s", [0.1, math.nan, math.inf, -1.0, 1e9])
def test_fast_links_and_what_no_way_takes_ask_no_more_than_the_most(longest_s: float) -> None:
    assert answer_size([1e12], longest_s, 3) == MOST_BYTES
    assert answer_size([math.inf], longest_s, 3) == MOST_BYTES


def test_a_rate_is_of_what_is_left_beside_a_round_trip() -> None:
    assert rate_together(100_000, 0.3, 0.1) == pytest.approx(4e6)
    assert rate_together(100_000, 0.1, 0.1) == pytest.approx(8e7), "a tenth of the time is the least"
    assert rate_together(100_000, 1e-9, 0.0) == rate_together(100_000, 0.0, 0.0) == FASTEST_BITS_PER_S
