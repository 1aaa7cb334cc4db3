"""The rules over votes: expected results are computed by hand, what holds for all votes is tried on many."""

import random

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from peerloom.kit.robust_rules import AUTO, CENTRED_CLIPPING, KRUM, MEDIAN, TRIMMED_MEAN
from peerloom.worker.sync.robust import aggregation, vote_rules
from peerloom.worker.sync.robust.histories import Histories
from peerloom.worker.sync.robust.votes import Votes

RULES = [TRIMMED_MEAN, MEDIAN, KRUM, CENTRED_CLIPPING]
NUMBERS = st.floats(-100, 100, width=32)


def result(rule: str, values: torch.Tensor) -> torch.Tensor:
    """The rule's gradient of these votes, as a worker comes to it whose part is the whole gradient."""
    names = tuple(f"owner-{i}" for i in range(len(values)))
    votes = Votes(values, names, (1,) * len(values), ())
    if rule == AUTO:
        histories = Histories()
        histories.add([votes])
        return aggregation.of_part_without(histories.apart(), votes)
    if not aggregation.needs_distances(rule):
        return aggregation.of_part(rule, votes)
    weights = aggregation.weights_of(rule, aggregation.part_products(votes, names))
    return aggregation.of_part_by(weights, votes, names)


def rows_of(draw_least: int = 5, draw_most: int = 12) -> st.SearchStrategy[list[list[float]]]:
    row = st.lists(NUMBERS, min_size=3, max_size=3)
    return st.lists(row, min_size=draw_least, max_size=draw_most)


def test_a_trimmed_mean_leaves_out_the_extremes_of_each_coordinate() -> None:
    votes = torch.tensor([[1.0, -9.0], [2.0, 10.0], [3.0, 20.0], [4.0, 30.0], [99.0, 40.0]])
    # Of 1, 2, 3, 4, 99 stay 2, 3, 4; of -9, 10, 20, 30, 40 stay 10, 20, 30.
    assert vote_rules.trimmed_mean(votes, 1).tolist() == [3.0, 20.0]
    assert vote_rules.trimmed_mean(votes, 2).tolist() == [3.0, 20.0]
    assert vote_rules.trimmed_mean(votes, 0).tolist() == pytest.approx([109 / 5, 91 / 5])


def test_a_median_of_an_even_number_is_the_mean_of_the_two_in_the_middle() -> None:
    assert vote_rules.median(torch.tensor([[5.0], [1.0], [9.0]])).tolist() == [5.0]
    assert vote_rules.median(torch.tensor([[5.0], [1.0], [9.0], [2.0]])).tolist() == [3.5]


def test_krum_takes_the_vote_that_is_nearest_to_the_others() -> None:
    """Five on a line, one liar expected: each is judged by its 5 - 1 - 2 = 2 nearest neighbours.

    Sums of squared distances: 0: 1 + 9 = 10; 1: 1 + 4 = 5; 3: 1 + 4 = 5; 4: 1 + 9 = 10; 50: 46^2 + 47^2.
    Of 1 and 3, which are equally good, the first is taken.
    """
    votes = torch.tensor([[0.0], [1.0], [3.0], [4.0], [50.0]])
    weights = vote_rules.krum(vote_rules.gram(votes, torch.zeros(1)), 1)
    assert weights.tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]


def test_clipping_lets_a_far_vote_pull_by_no_more_than_the_radius() -> None:
    """Votes 0, 1, 2, 3, 1000: median 2, distances 2, 1, 0, 1, 998, and so a radius of 1.

    First round: moves of -1, -1, 0, 1, 1 make 0: the centre stays at 2, and so in all rounds.
    """
    votes = torch.tensor([[0.0], [1.0], [2.0], [3.0], [1000.0]])
    assert result(CENTRED_CLIPPING, votes).tolist() == pytest.approx([2.0])


def test_clipping_moves_the_centre_round_after_round() -> None:
    """Votes 0, 0, 0, 4, 4, 4, 10 with the median 4: distances 4, 4, 4, 0, 0, 0, 6, radius 4.

    Moves of the first round: -4, -4, -4, 0, 0, 0, 4: the centre goes to 4 - 8/7 = 20/7. Second: -20/7 three
    times, 8/7 three times, 4: (-60 + 24 + 28) / 7 / 7 = -8/49: 132/49. Third: 3 (-132/49) + 3 (64/49) + 4
    = -8/49, over 7: -8/343: 916/343.
    """
    votes = torch.tensor([[0.0]] * 3 + [[4.0]] * 3 + [[10.0]])
    assert result(CENTRED_CLIPPING, votes).tolist() == pytest.approx([916 / 343])


def test_parts_come_to_the_same_as_the_whole() -> None:
    """Krum and clipping over the sum of two parts' Gram matrices take the same votes as over the whole."""
    values = torch.randn(7, 10, generator=torch.Generator().manual_seed(3))
    names = tuple("abcdefg")
    parts = [Votes(part, names, (1,) * 7, ()) for part in (values[:, :4], values[:, 4:])]
    for rule in (KRUM, CENTRED_CLIPPING):
        products = torch.stack([aggregation.part_products(part, names) for part in parts]).sum(0)
        weights = aggregation.weights_of(rule, products)
        joined = torch.cat([aggregation.of_part_by(weights, part, names) for part in parts])
        torch.testing.assert_close(joined, result(rule, values))


def test_a_vote_refused_in_one_part_has_no_weight_in_any() -> None:
    names = tuple("abcdef")
    values = torch.tensor([[1.0], [1.1], [0.9], [1.0], [1.2], [7.0]])
    whole = Votes(values, names, (1,) * 6, ())
    lacking = Votes(values[1:], names[1:], (1,) * 5, (0,))
    products = aggregation.part_products(whole, names) + aggregation.part_products(lacking, names)
    for rule in (KRUM, CENTRED_CLIPPING):
        weights = aggregation.weights_of(rule, products)
        assert weights[0] == 0
        assert bool(weights[1:].any())


def test_fewer_than_five_owners_get_the_mean_whatever_was_asked() -> None:
    assert [aggregation.rule_for(rule, 4, 4) for rule in (AUTO, *RULES)] == ["mean"] * 5
    assert [aggregation.rule_for(rule, 5, 5) for rule in (AUTO, *RULES)] == [AUTO, *RULES]


def test_a_short_batch_of_five_owners_is_no_step_without_a_rule() -> None:
    assert [aggregation.rule_for(rule, 5, 3) for rule in (AUTO, *RULES)] == [MEDIAN] * 5


def test_less_than_a_third_are_tolerated() -> None:
    assert [vote_rules.tolerated(votes) for votes in (1, 3, 4, 5, 6, 7, 8, 16)] == [0, 0, 1, 1, 1, 2, 2, 5]
    # What the rules themselves need: more than 2 liars, and of Krum 2 liars + 3.
    assert all(votes >= 2 * vote_rules.tolerated(votes) + 3 for votes in range(5, 200))


def test_the_sorting_network_sorts_any_number_of_rows() -> None:
    for count in range(1, 40):
        values = torch.randn(count, 50, generator=torch.Generator().manual_seed(count))
        assert torch.equal(torch.stack(vote_rules.sorted_rows(values)), values.sort(0).values)


@pytest.mark.parametrize("rule", [AUTO, *RULES])
@given(row=st.lists(NUMBERS, min_size=1, max_size=5), count=st.integers(5, 16))
def test_where_all_agree_the_result_is_what_they_say(rule: str, row: list[float], count: int) -> None:
    votes = torch.tensor([row] * count)
    torch.testing.assert_close(result(rule, votes), votes[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rule", [TRIMMED_MEAN, MEDIAN, CENTRED_CLIPPING])
@given(rows=rows_of(), seed=st.integers(0, 100))
def test_the_order_of_the_votes_plays_no_part(rule: str, rows: list[list[float]], seed: int) -> None:
    mixed = random.Random(seed).sample(rows, len(rows))
    torch.testing.assert_close(
        result(rule, torch.tensor(rows)), result(rule, torch.tensor(mixed)), rtol=1e-4, atol=1e-3
    )


@given(rows=rows_of(), seed=st.integers(0, 100))
def test_the_order_plays_no_part_in_krum_where_one_vote_is_the_best(
    rows: list[list[float]], seed: int
) -> None:
    products = vote_rules.gram(torch.tensor(rows), torch.zeros(3))
    norms = products.diagonal()
    distances = (norms[:, None] + norms[None, :] - 2 * products).fill_diagonal_(torch.inf)
    liars = vote_rules.tolerated(len(rows))
    scores = distances.sort(1).values[:, : len(rows) - liars - 2].sum(1).sort().values
    assume(scores[1] - scores[0] > 1e-3)
    mixed = random.Random(seed).sample(rows, len(rows))
    torch.testing.assert_close(result(KRUM, torch.tensor(rows)), result(KRUM, torch.tensor(mixed)))


@pytest.mark.parametrize("rule", [TRIMMED_MEAN, MEDIAN])
@given(
    honest=rows_of(4, 9),
    lies=st.lists(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=3, max_size=3)),
)
def test_liars_cannot_move_a_coordinate_out_of_what_honest_votes_say(
    rule: str, honest: list[list[float]], lies: list[list[float]]
) -> None:
    told = honest + lies[: (len(honest) - 1) // 2]  # at most less than a third of all
    assume(len(told) - len(honest) <= vote_rules.tolerated(len(told)))
    found, said = result(rule, torch.tensor(told)), torch.tensor(honest)
    slack = 1e-4
    assert bool((found >= said.min(0).values - slack).all())
    assert bool((found <= said.max(0).values + slack).all())


@given(honest=rows_of(5, 9), lie=st.floats(1e3, 1e30))
def test_krum_takes_no_lie_that_is_far_from_all_honest_votes(honest: list[list[float]], lie: float) -> None:
    lies = [[lie * (i + 1)] * 3 for i in range(vote_rules.tolerated(len(honest) + 1))]
    apart = result(KRUM, torch.tensor(honest + lies[:1])) - torch.tensor(honest)
    assert float(apart.abs().max(1).values.min()) < 1e-4


@given(honest=rows_of(5, 9), lie=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=3, max_size=3))
def test_one_lie_moves_clipping_by_less_than_honest_votes_are_apart(
    honest: list[list[float]], lie: list[float]
) -> None:
    """Each round moves the centre by the radius at most, and that is a distance of an honest vote."""
    said = torch.tensor(honest)
    found = result(CENTRED_CLIPPING, torch.tensor([*honest, lie]))
    apart = float((said.max(0).values - said.min(0).values).norm())
    nearest = float((found - said).norm(dim=1).min())
    assert nearest <= vote_rules.CLIPPING_ROUNDS * apart + 1e-3
