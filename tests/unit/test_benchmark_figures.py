"""What a benchmark reports: figures, intervals, verdicts, the page; and what is wrong with a kept result."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from benchmarks.check import flaws_of, history_flaws, is_before, is_known
from benchmarks.intervals import EXACT, figure_of, interval_of, ratio_interval_of
from benchmarks.keeping import git, replaced
from benchmarks.measure import MET, MISSED, OPEN, Goal, alternate, measurement, percentile
from benchmarks.report import page, row
from benchmarks.words import figure

NINE = [10.0, 11, 12, 13, 14, 15, 16, 17, 18]


@pytest.mark.parametrize(("percent", "expected"), [(50, 50), (99, 99), (99.5, 100), (100, 100), (0, 1)])
def test_a_percentile_is_a_value_that_was_measured(percent: float, expected: int) -> None:
    values = list(range(100, 0, -1))
    assert percentile(values, percent) == figure_of(f"p{percent}", values) == expected


def test_both_sides_are_told_by_their_medians() -> None:
    told = measurement("x", "ms", [9, 1, 2], rival="bare", rival_samples=[4, 4, 100])
    assert (told.value, told.rival_value, told.ratio, told.verdict) == (2, 4, 0.5, "")
    assert measurement("x", "ms", [9, 1, 2], statistic="mean").value == 4


def test_an_interval_lies_around_the_figure_and_is_always_the_same() -> None:
    low, high = interval_of("median", NINE) or (0, 0)
    assert 10 <= low < 14 < high <= 18
    assert interval_of("median", NINE) == (low, high)
    assert interval_of("median", [7.0] * 9) == (7, 7)
    assert interval_of("median", NINE[:4]) is None, "four samples say nothing about the fifth"
    assert interval_of(EXACT, [3.0]) == (3, 3)


def test_of_sides_that_ran_in_turn_pairs_are_drawn_so_that_what_slowed_both_is_no_difference() -> None:
    assert ratio_interval_of("median", NINE, [2 * one for one in NINE]) == (0.5, 0.5)
    apart = ratio_interval_of("median", NINE, [2 * one for one in NINE] * 2) or (0, 0)
    assert apart[0] < 0.5 < apart[1], "without pairs they differ by chance"
    assert ratio_interval_of("median", NINE, [0.0] * 9) is None


@pytest.mark.parametrize(
    ("goal", "verdict", "text"),
    [
        (Goal(10, at_least=True), MET, "at least 10 ms"),
        (Goal(14, at_least=True), OPEN, "at least 14 ms"),
        (Goal(19, at_least=True), MISSED, "at least 19 ms"),
        (Goal(19, at_least=False), MET, "at most 19 ms"),
        (Goal(0.5, at_least=True, of_ratio=True), MET, "at least 0.5 times the rival's"),
        (Goal(0.333, at_least=False, of_ratio=True), MISSED, "at most 0.333 times the rival's"),
    ],
)
def test_a_goal_is_judged_by_the_interval_of_the_figure_or_the_ratio(
    goal: Goal, verdict: str, text: str
) -> None:
    told = measurement("x", "ms", NINE, goal=goal, rival="bare", rival_samples=[2 * one for one in NINE])
    assert (told.verdict, told.goal_text) == (verdict, text)


def test_too_few_samples_leave_a_goal_open_unless_they_are_counted() -> None:
    goal = Goal(5, at_least=False)
    assert measurement("x", "ms", [1.0] * 4, goal=goal).verdict == OPEN
    assert measurement("lost", "", [0], statistic=EXACT, goal=goal).verdict == MET


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


def kept(**changes: Any) -> dict[str, Any]:
    """A figure as it is kept, with some of it changed afterwards."""
    goal = Goal(0.333, at_least=False, of_ratio=True)
    one = measurement("x", "ms", NINE, goal=goal, rival="bare", rival_samples=[2 * s for s in NINE])
    return {**json.loads(json.dumps(asdict(one))), **changes}


def result(*figures: dict[str, Any], processor: str = "P", **changes: Any) -> dict[str, Any]:
    machine = {"processor": processor, "cores": 2, "memory_bytes": 2**30, "system": "Linux 6"}
    told = {"benchmark": "b", "date": "d", "commit": git("rev-parse", "HEAD").strip(), "versions": {}}
    return {**told, "machine": machine, "measurements": list(figures), **changes}


def test_the_page_says_interval_and_verdict_and_groups_by_machine() -> None:
    low, high = kept()["interval"]
    ours = f"14.0 ms [{figure(low)}, {figure(high)}]"
    goal = "at most 0.333 times the rival's: **missed**"
    assert row(kept()) == f"| x | median of 9 | {ours} | {goal} | bare | 28.0 ms | 0.500 |"
    told = page([result(kept(), processor="B"), result(kept(), processor="A", benchmark="c")])
    headings = [line for line in told.splitlines() if line.startswith("##")]
    assert headings == [
        "## What decides",
        "## On A, 2 cores, 1 GiB",
        "### c",
        "## On B, 2 cores, 1 GiB",
        "### b",
    ]


def test_a_result_that_says_more_than_its_samples_is_found() -> None:
    assert flaws_of(result(kept())) == []
    for changes in ({"value": 13.0}, {"ratio": 0.4}, {"interval": [13.9, 14.1]}, {"verdict": MET}):
        (flaw,) = flaws_of(result(kept(**changes)))
        assert f"{next(iter(changes))} is " in flaw
    assert flaws_of(result(kept(), commit="0" * 12)) == [], "this clone can't say"
    assert (is_known("HEAD"), is_before("HEAD"), is_known("0" * 12)) == (True, True, False)
    without = {key: value for key, value in kept().items() if key != "rival_samples"}
    assert flaws_of(result(without)) == ["b doesn't keep the samples of both sides"]


def test_what_a_result_replaces_stays_in_the_history_and_the_history_ends_with_what_is_there() -> None:
    old, new = result(kept(), kept(name="y"), commit="a"), result(kept(value=9.0), commit="b")
    lines = replaced(old, new, "the code is faster")
    assert [(line["figure"], line["old"], line["new"]) for line in lines] == [("x", 14, 9), ("y", 14, None)]
    assert {(line["old_commit"], line["new_commit"], line["why"]) for line in lines} == {
        ("a", "b", "the code is faster")
    }
    assert history_flaws(lines, [new]) == []
    assert history_flaws(lines, [result(kept())]) == ["b, 'x' is 14.0, but the history ends with 9.0"]
    back = replaced(new, old, "y is measured again")
    assert [(line["figure"], line["old"], line["new"]) for line in back] == [("x", 9, 14), ("y", None, 14)]
    assert history_flaws(lines + back, [old]) == []
