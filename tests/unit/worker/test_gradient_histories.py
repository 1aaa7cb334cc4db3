"""Whose history stands apart: distances computed by hand, and what each step adds."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from peerloom.worker.sync.robust import aggregation, vote_rules
from peerloom.worker.sync.robust.histories import KEPT, Histories
from peerloom.worker.sync.robust.votes import Votes

SEVEN = tuple("abcdefg")


def votes_of(*values: float, owners: tuple[str, ...] = SEVEN) -> Votes:
    return Votes(torch.tensor(values, dtype=torch.float32)[:, None], owners, (1,) * len(values), ())


def squares_of(*places: float) -> torch.Tensor:
    line = torch.tensor(places, dtype=torch.float64)
    return (line[:, None] - line) ** 2


def test_who_is_more_than_twice_as_far_as_usual_stands_apart() -> None:
    """Five on a line, one liar at most: each is judged by its 5 - 1 - 1 = 3 nearest, in squares.

    0: (1 + 4 + 9) / 3 = 14/3; 1: (1 + 1 + 4) / 3 = 2; 2: 2; 3: (1 + 4 + 4) / 3 = 3;
    5: (4 + 9 + 16) / 3 = 29/3.
    The usual one is the lower one in the middle of 2, 2, 3, 14/3, so that 4 is the most.
    """
    assert vote_rules.apart(squares_of(0, 1, 2, 3, 5), 1) == [4]
    assert vote_rules.apart(squares_of(0, 1, 2, 3, 4), 1) == [4], "4 is (1 + 4 + 9) / 3, as 0 is"


def test_where_all_are_alike_nobody_stands_apart() -> None:
    assert vote_rules.apart(squares_of(7, 7, 7, 7, 7), 1) == []
    around = torch.ones(6, 6, dtype=torch.float64)  # each as far from each
    assert vote_rules.apart(around, 1) == []


def test_no_more_than_the_tolerated_stand_apart_the_farthest() -> None:
    assert vote_rules.apart(squares_of(0, 0, 0, 50, 0, 90, 70), 2) == [6, 5]


def test_what_cannot_be_measured_stands_apart() -> None:
    squares = squares_of(0, 1, 2, 1, 0)
    squares[3, :] = squares[:, 3] = torch.nan
    assert vote_rules.apart(squares, 1) == [3]


def test_the_first_steps_count_alike_and_later_ones_by_a_twentieth() -> None:
    """Votes 1, then 3: the mean is (0.95 x 1 + 3) / 1.95. After very many of 1, one of 3 moves it by 0.1."""
    histories = Histories()
    histories.add([votes_of(1.0, owners=("a",))])
    histories.add([votes_of(3.0, owners=("a",))])
    assert histories._means["a"][0].item() == pytest.approx((KEPT + 3) / (KEPT + 1))
    histories = Histories()
    for _ in range(400):
        histories.add([votes_of(1.0, owners=("a",))])
    histories.add([votes_of(3.0, owners=("a",))])
    assert histories._means["a"][0].item() == pytest.approx(1.1)


def test_a_lie_that_hides_in_each_step_shows_over_many() -> None:
    """Honest votes are 0 with a deviation of 1, the lie is 1.5: below one honest vote in fifteen, a step."""
    chance, histories = torch.Generator().manual_seed(1), Histories()
    alone = []
    for _ in range(60):
        values = torch.randn(7, 200, generator=chance)
        values[6] = 1.5 + 0 * values[6]
        found = Votes(values, SEVEN, (1,) * 7, ())
        single = Histories()
        single.add([found])
        alone.append(single.apart())
        histories.add([found])
    assert alone[-1] == []
    assert histories.apart() == ["g"]


def test_histories_begin_anew_when_an_owner_is_heard_for_the_first_time() -> None:
    histories, six = Histories(), SEVEN[:6]
    for _ in range(5):
        histories.add([votes_of(0, 1, 0, 1, 0, 90, owners=six)])
    assert histories.apart() == ["f"]
    histories.add([votes_of(0, 1, 0, 1, 0, 0.5, 1)])
    assert histories.apart() == [], "what was said before is forgotten"


def test_who_is_refused_in_one_bucket_is_not_heard_in_any() -> None:
    histories = Histories()
    whole, lacking = votes_of(*range(7)), votes_of(*range(6), owners=SEVEN[1:])
    histories.add([whole, lacking])
    assert set(histories._means) == set(SEVEN[1:])


def test_without_who_stands_apart_one_less_is_trimmed() -> None:
    """1 to 5 and two liars: left out both, the mean is 3; one, 2, 3, 4, 5 of 1 to 5 and 99; none, 3 to 5."""
    votes = votes_of(1, 2, 3, 4, 5, 99, 98)
    assert aggregation.of_part_without(["f", "g"], votes).tolist() == [3.0]
    assert aggregation.of_part_without(["g"], votes).tolist() == [3.5]
    assert aggregation.of_part_without([], votes).tolist() == [4.0]


@given(
    honest=st.lists(st.floats(-100, 100, width=32), min_size=5, max_size=5),
    lies=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), max_size=2, min_size=2),
)
def test_liars_who_are_left_out_or_trimmed_cannot_move_a_coordinate_out_of_what_honest_votes_say(
    honest: list[float], lies: list[float]
) -> None:
    for left_out in ([], ["f"], ["f", "g"]):
        found = float(aggregation.of_part_without(left_out, votes_of(*honest, *lies)))
        assert min(honest) - 1e-3 <= found <= max(honest) + 1e-3
