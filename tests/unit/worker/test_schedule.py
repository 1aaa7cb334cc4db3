"""Which samples belong to which step and worker: every sample once an epoch, whoever trains."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from peerloom.worker.schedule import Schedule, samples_of, split_batch


def test_counts_steps_by_hand() -> None:
    """1,437 digits in batches of 32: 44 full ones and one of 29."""
    schedule = Schedule(samples=1437, batch_size=32, epochs=2, seed=0)
    assert (schedule.steps_per_epoch, schedule.total_steps) == (45, 90)
    assert schedule.bounds(44) == (1408, 1437)
    assert schedule.bounds(45) == (0, 32)
    assert (schedule.epoch_of(44), schedule.epoch_of(45)) == (0, 1)


def test_a_round_is_so_many_batches_and_ends_with_its_epoch() -> None:
    """1,437 digits in batches of 32, 20 a round: of the 45 batches the third round has five."""
    schedule = Schedule(samples=1437, batch_size=32, epochs=2, seed=0)
    assert [schedule.round_end(step, 20) for step in (0, 20, 40, 45, 65)] == [20, 40, 45, 65, 85]
    assert schedule.samples_in(range(40, 45)) == 1437 - 40 * 32


def test_a_round_that_begins_within_one_ends_where_that_would() -> None:
    """In batches 45 to 89, the second epoch's, rounds of 20 end after 65, 85 and 90."""
    schedule = Schedule(samples=1437, batch_size=32, epochs=2, seed=0)
    assert [schedule.round_end(step, 20) for step in (47, 64, 66, 89)] == [65, 65, 85, 90]
    assert schedule.round_end(47, 1_000) == 90


def test_an_epoch_may_be_one_step() -> None:
    schedule = Schedule(samples=1437, batch_size=32, epochs=2, seed=0, is_epoch_a_step=True)
    assert (schedule.steps_per_epoch, schedule.total_steps, schedule.total_batches) == (1, 2, 90)
    assert schedule.bounds(1) == (0, 1437)


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    one, two = Schedule(100, 8, 3, seed=5), Schedule(100, 16, 3, seed=5)
    assert torch.equal(one.order(1), two.order(1))
    assert not torch.equal(one.order(0), one.order(1))
    assert not torch.equal(one.order(0), Schedule(100, 8, 3, seed=6).order(0))


def test_any_seed_of_64_bits_gives_an_order() -> None:
    """Beyond some 1.8e13 the epoch's own seed had more bits than torch takes."""
    largest = Schedule(100, 8, 1_000_000, seed=2**64 - 1)
    assert sorted(largest.order(999_999).tolist()) == list(range(100))
    # (2^64 - 1) * 1,000,003 + 1 is 2^64 - 1,000,002 in 64 bits.
    expected = torch.randperm(100, generator=torch.Generator().manual_seed(2**64 - 1_000_002))
    assert torch.equal(largest.order(1), expected)


def test_whole_samples_by_hand() -> None:
    """32 samples over shares 3:2:2 are 13.71, 9.14, 9.14: the spare one goes to the first."""
    assert split_batch(32, [3, 2, 2]) == [14, 9, 9]
    assert split_batch(32, [1, 1, 1]) == [11, 11, 10]
    assert split_batch(1, [1, 1]) == [1, 0]


def test_a_spare_sample_goes_where_it_costs_least() -> None:
    """12 samples over shares 209:31 are 10.45 and 1.55, but 11/209 is less than 2/31."""
    assert split_batch(12, [209, 31]) == [11, 1]


def test_nobody_takes_one_sample_where_two_are_the_fewest() -> None:
    """57 over 94:6:100 are 26.8, 1.7, 28.5, so 27, 1, 29: one of the 29 goes to the slow one."""
    assert split_batch(57, [94, 6, 100]) == [27, 1, 29]
    assert split_batch(57, [94, 6, 100], least=2) == [27, 2, 28]
    assert split_batch(4, [1, 1, 1, 1], least=2) == [0, 2, 0, 2]
    assert split_batch(3, [1, 1, 1], least=2) == [0, 3, 0]
    assert split_batch(1, [1, 1], least=2) == [1, 0]


@given(st.integers(2, 200), st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(any))
def test_everybody_takes_enough_or_nothing(count: int, shares: list[int]) -> None:
    counts = split_batch(count, shares, least=2)
    assert sum(counts) == count
    assert all(got == 0 or got >= 2 for got in counts)
    assert all(share or not got for got, share in zip(counts, shares, strict=True))


@given(st.integers(0, 500), st.lists(st.integers(1, 50), min_size=1, max_size=12))
def test_shares_are_exact_in_sum_and_no_step_is_shorter(count: int, shares: list[int]) -> None:
    """A sample moved from the worker that ends last to another would make that one end as late, or later."""
    counts = split_batch(count, shares)
    assert sum(counts) == count
    assert all(got >= count * share // sum(shares) for got, share in zip(counts, shares, strict=True))
    last_share = max(got / share for got, share in zip(counts, shares, strict=True))
    assert all((got + 1) / share >= last_share for got, share in zip(counts, shares, strict=True))


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 9), st.integers(0, 10), st.integers(1, 12))
def test_an_epoch_is_the_data_set_each_sample_once(
    n: int, batch: int, world: int, seed: int, period: int
) -> None:
    schedule, step, seen = Schedule(n, batch, 2, seed), 0, list[int]()
    while step < schedule.total_steps:
        steps = range(step, schedule.round_end(step, period))
        assert 1 <= len(steps) <= period
        assert len({schedule.epoch_of(one) for one in steps}) == 1, "a round ends with its epoch"
        for one in steps:
            first, end = schedule.bounds(one)
            counts = split_batch(end - first, [1] * world)
            for rank in range(world):
                seen += samples_of(schedule.order(schedule.epoch_of(one))[first:end], counts, rank).tolist()
        step = steps.stop
    assert [sorted(seen[:n]), sorted(seen[n:])] == [list(range(n))] * 2
