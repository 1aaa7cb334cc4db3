"""How values become text."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import click
import pytest
from cli_samples import TERMS
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from peerloom import BeliefTerms, BeliefWeights
from peerloom.cli.explain import explain, in_brief, number
from peerloom.cli.output import table_lines, to_plain
from peerloom.cli.units import human_age, human_duration, metric_of
from peerloom.kit.printable import Column
from peerloom.kit.quantity_texts import plural


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (3725, "1 h 02 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_ages_counts_and_metrics() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert human_age(now - timedelta(seconds=12), now) == "12 s ago"
    assert human_age(now + timedelta(seconds=1), now) == "0.0 s ago"
    assert human_age(None) == "-"
    assert (plural(1, "node"), plural(2_000, "node")) == ("1 node", "2,000 nodes")
    assert (metric_of("accuracy", 0.5), metric_of(None, None)) == ("accuracy 0.5000", "-")


def test_columns_align_words_left_and_numbers_right() -> None:
    columns = [Column("NAME", lambda row: row[0]), Column("N", lambda row: str(row[1]), right=True)]
    lines = [click.unstyle(line) for line in table_lines([("a", 1), ("longer", 100)], columns)]
    assert lines == ["NAME      N", "a         1", "longer  100"]


def test_a_belief_is_explained_in_names_figures_and_results() -> None:
    assert explain(TERMS, 2.65) == [
        "(1) score_new    = 0.3*score_old + 0.1*transmissions + 0.5*trainings - 1*delay",
        "                 = 0.3*2 + 0.1*3 + 0.5*4 - 1*0.25",
        "                 = 0.6 + 0.3 + 2 - 0.25",
        "                 = 2.65",
        "",
        "(2) time_score   = min(10, sum of ln(online + 1))",
        "                 = min(10, 1.5 + ln(0 + 1))",
        "                 = 1.5",
        "",
        "(3) score_reduce = interruptions + unfinished - time_score",
        "                 = 1 + 2 - 1.5",
        "                 = 1.5",
        "",
        "(4) belief       = score_new + time_score - score_reduce",
        "                 = 2.65 + 1.5 - 1.5",
        "                 = 2.65",
        "",
    ]


def test_what_lies_leave_of_a_belief_is_shown_beside_the_formulas() -> None:
    lines = explain(replace(TERMS, lies=2), -2_000_000.0)
    assert lines[:-4] == explain(TERMS, 2.65), "the printed formulas stay as they are"
    assert lines[-4:] == [
        "after lies       = min(belief, -1000000*lies)",
        "                 = min(2.65, -1000000*2)",
        "                 = -2000000",
        "",
    ]
    assert str(replace(TERMS, lies=2)).endswith("= 2.65\nbelief = min(2.65, -1e+06*2)")


def test_the_formulas_in_brief_carry_the_weights_in_force() -> None:
    assert in_brief(TERMS.weights)[1] == "new    = 0.3*old + 0.1*sent + 0.5*trained - 1*delay"


@given(
    old=st.floats(-100, 100),
    counts=st.tuples(*[st.integers(0, 1000)] * 4),
    times=st.tuples(st.floats(0, 60), st.floats(0, 1e6), st.floats(0, 100)),
)
def test_the_shown_figures_give_the_shown_result(
    old: float, counts: tuple[int, int, int, int], times: tuple[float, float, float]
) -> None:
    """A student who computes each line's figures gets the next line, but for the sixth decimal."""
    sent, trained, lost, refused = counts
    log, online_s, delay_s = times
    score_new = 0.3 * old + 0.1 * sent + 0.5 * trained - delay_s
    time_score = min(10.0, log + math.log(online_s + 1))
    reduce = lost + refused - time_score
    belief = score_new + time_score - reduce
    weights = BeliefWeights(0.3, 0.1, 0.5, 1.0, 10.0)
    terms = BeliefTerms(
        old, sent, trained, delay_s, log, online_s, lost, refused, score_new, time_score, reduce, weights
    )
    for formula in "\n".join(explain(terms, belief)).split("\n\n"):
        figures = [line.split(" = ")[1].replace("ln", "log") for line in formula.splitlines()[1:]]
        values = [eval(line, {"min": min, "log": math.log}) for line in figures]
        assert values == pytest.approx([values[-1]] * len(values), abs=1e-5)


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (0.1 + 0.2, "0.3"), (-0.0, "0"), (-1e-9, "0"), (1 / 3, "0.333333")]
)
def test_numbers_have_at_most_six_decimals(value: float, text: str) -> None:
    assert number(value) == text


def test_values_become_plain() -> None:
    plain = to_plain({"terms": TERMS, "when": datetime(2026, 1, 1, tzinfo=UTC), "many": (1, None)})
    assert plain["terms"]["weights"]["delay"] == 1.0
    assert (plain["when"], plain["many"]) == ("2026-01-01T00:00:00+00:00", [1, None])


NAMED = (Column("NAME", lambda row: row[0]), Column("SLOTS", lambda row: row[1], right=True))


def test_wide_characters_take_the_place_that_a_terminal_gives_them() -> None:
    """東 and 🚀 are two columns wide each."""
    head, *lines = table_lines([("東京", "12"), ("rocket🚀", "3"), ("x", "4")], NAMED)
    assert lines == ["東京         12", "rocket🚀      3", "x             4"]
    assert {cell_len(line) for line in (*lines, click.unstyle(head))} == {15}


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_loses_no_character_and_stays_in_line(width: int) -> None:
    names = ["東京" * 12, "rocket🚀" * 9, "plain-name" * 7]
    columns = (*NAMED, Column("ADDRESS", lambda row: row[2]))
    lines = table_lines([(name, "7", "127.0.0.1:7403") for name in names], columns, width=width)
    shown = [click.unstyle(line) for line in lines]
    assert max(map(cell_len, shown)) <= width
    ends = {cell_len(line[: line.index("127")]) for line in shown if "127" in line}
    assert len(ends) == 1, "the column begins in one place"
    for name in names:
        assert all(sum(line.count(one) for line in shown) >= name.count(one) for one in set(name))


def test_a_row_is_a_block_where_its_words_don_t_fit_beside_each_other() -> None:
    columns = (*NAMED, Column("ADDRESS", lambda row: row[2]))
    rows = [("node-1", "7", "127.0.0.1:7403"), ("node-2", "11", "127.0.0.1:7404")]
    assert [click.unstyle(line) for line in table_lines(rows, columns, width=26)] == [
        "NAME     node-1",
        "SLOTS    7",
        "ADDRESS  127.0.0.1:7403",
        "",
        "NAME     node-2",
        "SLOTS    11",
        "ADDRESS  127.0.0.1:7404",
    ]


@pytest.mark.parametrize("width", range(28, 40))
def test_no_short_word_of_a_narrow_table_is_cut(width: int) -> None:
    columns = (*NAMED, Column("LAST SEEN", lambda row: row[2]))
    head, *lines = table_lines([("node-1", "7", "4 min ago, by its own word")], columns, width=width)
    assert click.unstyle(head).split() == ["NAME", "SLOTS", "LAST", "SEEN"]
    assert " ".join(lines).split() == ["node-1", "7", *["4", "min", "ago,", "by", "its", "own", "word"]]
    assert max(map(cell_len, lines)) <= width
