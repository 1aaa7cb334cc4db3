"""How a batch is divided among unequal workers, by hand and by an invented cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.worker.balance import BATCHES_MAX, BATCHES_MIN, Balance, batches_until_next
from peerloom.worker.schedule import split_batch
from peerloom.worker.shares import (
    GAIN_AT_ONCE,
    MEASUREMENTS_MOST,
    divide_anew,
    first_shares,
    shares_for,
    stage_shares,
)


def test_a_worker_of_a_third_of_the_speed_gets_a_third_of_a_share() -> None:
    shares = shares_for([0.001, 0.001, 0.003])
    assert shares == [10_000, 10_000, 3333]
    assert split_batch(70, shares) == [30, 30, 10]


def test_equal_speeds_are_left_alone() -> None:
    assert divide_anew([1, 1], [[0.001, 0.00105]] * MEASUREMENTS_MOST).shares == [1, 1]


def test_a_slow_worker_is_worth_a_new_division_at_once() -> None:
    """Equal thirds: a step takes 3/3 = 1 unit; at best 1 / (1 + 1 + 1/3) = 3/7: 2.33 times as fast."""
    division = divide_anew([1, 1, 1], [[1.0, 1.0, 3.0]])
    assert "2.33 times" in division.reason
    assert division.shares == [10_000, 10_000, 3333]


def test_a_small_difference_must_be_seen_for_longer() -> None:
    """Equal shares take 1.13 / 2, the best 1.13 / 2.13: a gain of 1.065, which two measurements promise."""
    assert divide_anew([1, 1], [[1.0, 1.13]]).reason == ""
    assert divide_anew([1, 1], [[1.0, 1.13]] * 2).shares == [10_000, 8850]


def test_what_is_slower_now_and_then_is_not_slower() -> None:
    """Each is 10 % slower than the other in turn: of one measurement a gain of 1.05, of two in a row none."""
    assert divide_anew([1, 1], [[1.0, 1.1], [1.1, 1.0]] * 2 + [[1.0, 1.1]]).reason == ""


def test_what_has_become_slower_is_divided_by_what_it_is_now() -> None:
    assert divide_anew([1, 1], [[1.0, 1.0]] * 3 + [[1.0, 2.0]]).shares == [10_000, 5000]


def test_an_unmeasured_worker_puts_the_question_off() -> None:
    assert divide_anew([1, 1], [[1.0, 0.0]]).reason == ""
    assert divide_anew([1, 1], [[1.0, 0.0], [1.0, 1.07]]).reason == "", "only the newest counts"


def test_a_newcomer_counts_as_a_middling_worker_beside_the_known_ones() -> None:
    """Speeds 1, 1 and 1/3; the newcomer's is taken to be the median, 1."""
    speeds = {"a": 0.001, "b": 0.001, "c": 0.003}
    assert first_shares(["a", "b", "c", "new"], speeds) == [10_000, 10_000, 3333, 10_000]
    assert first_shares(["a", "new"], {"a": 0.001}) == [1, 1]
    assert first_shares(["a", "b"], {}) == [1, 1]


def test_a_pipeline_is_cut_by_speeds_only_where_they_differ_by_half() -> None:
    assert stage_shares(["a", "b"], {"a": 0.01, "b": 0.04}) == [10_000, 2500]
    assert stage_shares(["a", "b", "new"], {"a": 0.01, "b": 0.02}) == [10_000, 5000, 6667], "a middling one"
    assert stage_shares(["a", "b"], {"a": 0.01, "b": 0.0149}) == [1, 1]
    assert stage_shares(["a", "b"], {"a": 0.01}) == [1, 1]
    assert stage_shares(["a", "b"], {}) == [1, 1]


@given(st.lists(st.floats(1e-5, 1e-2), min_size=2, max_size=8))
def test_the_proportional_division_is_never_worth_another(seconds: list[float]) -> None:
    if max(seconds) < 100 * min(seconds):
        assert divide_anew(shares_for(seconds), [seconds] * MEASUREMENTS_MOST).reason == ""


@pytest.mark.parametrize("count", [1, 7, 32, 1000])
def test_every_sample_is_given_out_once_whatever_the_shares(count: int) -> None:
    assert sum(split_batch(count, shares_for([0.1, 0.7]))) == count


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=8).filter(any), st.integers(1, 5000))
def test_who_has_no_share_gets_no_sample(shares: list[int], count: int) -> None:
    """A newcomer that listens has share 0; the others make up the whole batch."""
    counts = split_batch(count, shares)
    assert sum(counts) == count
    assert all(taken == 0 for taken, share in zip(counts, shares, strict=True) if not share)


@given(
    st.lists(st.tuples(st.floats(0.0, 0.01), st.floats(1e-4, 1e-3)), min_size=2, max_size=5),
)
def test_measuring_and_dividing_again_comes_to_rest_near_the_best_division(
    workers: list[tuple[float, float]],
) -> None:
    """A step costs something however few samples it has; after ten rounds all take nearly as long."""
    batch, shares = 1000, [1] * len(workers)
    for _ in range(10):
        counts = split_batch(batch, shares)
        times = [fixed + count * each for (fixed, each), count in zip(workers, counts, strict=True)]
        seconds = [time / count if count else 0.0 for time, count in zip(times, counts, strict=True)]
        shares = divide_anew(shares, [seconds]).shares
    assert max(times) <= 1.02 * GAIN_AT_ONCE * sum(times) / len(times)


def test_the_next_look_comes_after_two_seconds_of_steps() -> None:
    assert batches_until_next(10, 1.0) == 20
    assert batches_until_next(10, 0.001) == BATCHES_MAX
    assert batches_until_next(10, 100.0) == BATCHES_MIN
    assert batches_until_next(10, 0.0) == BATCHES_MAX


def test_shares_are_told_with_the_first_step_and_where_they_changed() -> None:
    balance = Balance([1, 1], is_fixed=True)
    told = [balance.news(shares) for shares in ([1, 1], [1, 1], [3, 1], [3, 1], [1, 1])]
    assert told == [[1, 1], [], [3, 1], [], [1, 1]]
