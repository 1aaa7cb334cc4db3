"""What a benchmark reports: medians, percentiles, verdicts and the page's figures."""

import pytest

from benchmarks.measure import Goal, alternate, measurement, percentile
from benchmarks.report import figure, row


@pytest.mark.parametrize(("percent", "expected"), [(50, 50), (99, 99), (99.5, 100), (100, 100), (0, 1)])
def test_a_percentile_is_a_value_that_was_measured(percent: float, expected: int) -> None:
    assert percentile(list(range(100, 0, -1)), percent) == expected


def test_both_sides_are_told_by_their_medians() -> None:
    told = measurement("x", "ms", [9, 1, 2], rival="bare", rival_samples=[4, 4, 100])
    assert (told.value, told.rival_value, told.ratio, told.met) == (2, 4, 0.5, None)


@pytest.mark.parametrize(
    ("goal", "met", "text"),
    [
        (Goal(2, at_least=True), True, "at least 2 ms"),
        (Goal(2, at_least=False), True, "at most 2 ms"),
        (Goal(2.1, at_least=True), False, "at least 2.1 ms"),
        (Goal(0.5, at_least=True, of_ratio=True), True, "at least 0.5 times the rival's"),
        (Goal(0.333, at_least=False, of_ratio=True), False, "at most 0.333 times the rival's"),
    ],
)
def test_a_goal_judges_the_figure_or_the_ratio(goal: Goal, met: bool, text: str) -> None:
    told = measurement("x", "ms", [2.0], goal=goal, rival="bare", rival_samples=[4.0])
    assert (told.met, told.goal) == (met, text)


def test_the_two_sides_run_in_turn() -> None:
    order: list[str] = []
    alternate(2, lambda: order.append("a"), lambda: order.append("b"))
    assert order == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.0123456, "0.0123"),
        (0.98765, "0.988"),
        (12.345, "12.3"),
        (5123.4, "5,123"),
        (1e5, "100,000"),
    ],
)
def test_the_page_shows_three_digits(value: float, shown: str) -> None:
    assert figure(value) == shown


def test_a_missed_goal_is_said_aloud() -> None:
    one = {"name": "x", "value": 27.0, "unit": "ms", "goal": "at most 20 ms", "met": False, "ratio": None}
    assert row(one) == "| x | 27.0 ms | at most 20 ms: **missed** | - | - | - |"
