"""Which ranks average within a round: by hand, and that what one has learned comes to all."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.kit.rank_groups import RankGroups

COUNTS = st.integers(2, 40)
SIZES = st.integers(2, 8)


def divided(ranks: int, size: int, occasion: int) -> list[tuple[int, ...]]:
    return RankGroups(size, 1).divide(range(ranks), [""] * ranks, (), occasion)


def test_four_ranks_in_pairs_meet_along_both_sides_of_a_square() -> None:
    assert divided(4, 2, 0) == [(0, 1), (2, 3)]
    assert divided(4, 2, 1) == [(0, 2), (1, 3)]
    assert divided(4, 2, 2) == divided(4, 2, 0)


def test_of_three_in_pairs_another_one_is_alone_each_time() -> None:
    alone = [next(group for group in divided(3, 2, occasion) if len(group) == 1) for occasion in range(3)]
    assert len(set(alone)) > 1


def test_a_group_that_holds_all_is_the_same_each_time() -> None:
    assert divided(3, 8, 0) == divided(3, 8, 5) == [(0, 1, 2)]


@given(COUNTS, SIZES, st.integers(0, 1000))
def test_groups_have_each_rank_once_and_differ_by_one_at_most(ranks: int, size: int, occasion: int) -> None:
    groups = divided(ranks, size, occasion)
    assert sorted(rank for group in groups for rank in group) == list(range(ranks))
    sizes = {len(group) for group in groups}
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1


@given(COUNTS, SIZES, st.integers(0, 100))
def test_what_one_has_learned_comes_to_all_in_twice_the_turns(ranks: int, size: int, first: int) -> None:
    known = [{rank} for rank in range(ranks)]
    for occasion in range(first, first + 2 * RankGroups(size, 1).turns(ranks)):
        for group in divided(ranks, size, occasion):
            together = set().union(*(known[rank] for rank in group))
            for rank in group:
                known[rank] = together
    assert all(one == set(range(ranks)) for one in known)


@given(SIZES, st.integers(1, 2), st.integers(0, 100))
def test_a_power_of_the_size_has_the_mean_of_all_after_as_many_turns(
    size: int, sides: int, first: int
) -> None:
    ranks = size**sides
    values = [Fraction(rank) for rank in range(ranks)]
    for occasion in range(first, first + sides):
        for group in divided(ranks, size, occasion):
            mean = sum(values[rank] for rank in group) / len(group)
            for rank in group:
                values[rank] = mean
    assert set(values) == {Fraction(ranks - 1, 2)}


def test_by_site_those_on_one_node_or_on_nodes_that_are_named_together_average() -> None:
    groups, nodes = RankGroups(0, 4), ["a", "b", "a", "c", "d"]
    assert groups.divide(range(5), nodes, (), 3) == [(0, 2), (1,), (3,), (4,)]
    assert groups.divide(range(5), nodes, (("a", "b"), ("c", "x")), 0) == [(0, 1, 2), (3,), (4,)]
    assert groups.divide([0, 2, 4], nodes, (), 0) == [(0, 2), (4,)], "who takes no part is in none"
    assert groups.turns(100) == 1


def test_an_averaging_follows_each_so_many_batches_but_the_last() -> None:
    groups = RankGroups(2, 4)
    rounds = [range(12), range(12, 24), range(24, 28)]
    steps = [(step, one) for one in rounds for step in one]
    assert [groups.occasion(step, one, 12) for step, one in steps[2:5]] == [None, 0, None]
    found = [groups.occasion(step, one, 12) for step, one in steps]
    assert [one for one in found if one is not None] == [0, 1, 2, 3], "an epoch's last round may be shorter"
    assert (groups.occasions(12), groups.occasions(13), groups.occasions(4)) == (2, 3, 0)


@pytest.mark.parametrize(("ranks", "turns"), [(2, 1), (4, 1), (5, 2), (16, 2), (17, 3)])
def test_turns_are_the_logarithm_of_the_ranks(ranks: int, turns: int) -> None:
    assert RankGroups(4, 1).turns(ranks) == turns
