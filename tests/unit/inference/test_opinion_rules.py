"""When another node is asked, and what its answer says of the first one's: pure rules, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from peerloom.inference.client.opinion_rules import OpinionVerdict, alike, chance_of_asking, verdict

TRUE = np.array([[0.0, 1.0, 10.0], [5.0, -5.0, 0.0]], np.float32)
LIE = np.array([[10.0, 1.0, 0.0], [5.0, -5.0, 0.0]], np.float32)
OTHER_LIE = -TRUE


def test_a_node_is_checked_at_first_and_ever_more_seldom_but_never_not() -> None:
    chances = [chance_of_asking(agreements) for agreements in (0, 1, 3, 99, 10_000)]
    assert chances == [1.0, 0.5, 0.25, 0.01, 0.01]


ROWS = arrays(np.float32, (3, 4), elements=st.floats(-100, 100, width=32))


@given(outputs=ROWS, noise=arrays(np.float64, (3, 4), elements=st.floats(-1, 1)))
def test_rounding_of_another_machine_is_the_same_answer(outputs: np.ndarray, noise: np.ndarray) -> None:
    """Sums in another order: relative to a row's largest value 1e-5."""
    largest = np.abs(outputs).max(axis=1, keepdims=True)
    assert alike(outputs, (outputs + 1e-5 * largest * noise).astype(np.float32))


@given(outputs=ROWS, other=ROWS)
def test_being_alike_has_no_first_and_second(outputs: np.ndarray, other: np.ndarray) -> None:
    assert alike(outputs, other) == alike(other, outputs)
    assert alike(outputs, outputs)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (
            TRUE + np.float32(0.19),
            True,
        ),  # 2 % of the span of 10 and more, and a ten-thousandth of the largest
        (TRUE + np.float32(0.21), False),
        (LIE, False),  # one row of two
        (TRUE[:1], False),
        (TRUE * 1e6, False),  # a liar's large numbers don't widen what is allowed
        (TRUE.astype(np.float64), True),
    ],
)
def test_what_is_the_same_answer_by_hand(other: np.ndarray, same: bool) -> None:
    assert alike(TRUE, other) == same


def test_logits_far_from_zero_may_not_be_turned_within_the_tolerance() -> None:
    """Of 1000, 1001 and 1002 the span is 2: 0.04 and 0.1 of rounding are allowed, not 2 % of 1000."""
    rows = np.array([[1000.0, 1001.0, 1002.0]], np.float32)
    assert alike(rows, rows + np.float32(0.1))
    assert not alike(rows, rows[:, ::-1])


def test_whole_numbers_have_to_be_equal() -> None:
    assert alike(np.array([7, 8]), np.array([7, 8]))
    assert not alike(np.array([1000]), np.array([1001]))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"a": TRUE, "b": TRUE}, OpinionVerdict(right=("a", "b"))),
        ({"a": TRUE, "b": LIE}, OpinionVerdict(doubtful=("a", "b"))),
        ({"a": LIE, "b": TRUE, "c": TRUE}, OpinionVerdict(right=("b", "c"), wrong=("a",))),
        ({"a": TRUE, "b": LIE, "c": TRUE}, OpinionVerdict(right=("a", "c"), wrong=("b",))),
        ({"a": TRUE, "b": LIE, "c": OTHER_LIE}, OpinionVerdict(doubtful=("a", "b", "c"))),
    ],
)
def test_most_are_right_and_without_most_all_are_doubtful(
    answers: dict[str, np.ndarray], expected: OpinionVerdict
) -> None:
    assert verdict(answers) == expected


def test_what_the_caller_computed_decides_alone() -> None:
    two_liars = {"a": LIE, "b": LIE, "own": TRUE}
    assert verdict(two_liars, "own") == OpinionVerdict(right=("own",), wrong=("a", "b"))
    assert verdict({"a": TRUE, "b": LIE, "own": TRUE}, "own") == OpinionVerdict(
        right=("a", "own"), wrong=("b",)
    )
