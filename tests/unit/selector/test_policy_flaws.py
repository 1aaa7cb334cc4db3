"""The thesis's known flaws, each shown on its formula, and that survival has none of them."""

from functools import cache

import numpy as np
import pytest

from benchmarks.flaws import (
    DAY_S,
    T0,
    Life,
    columns_of,
    flapper,
    rounds_until_tried,
    score,
    share,
    steady,
    sybils,
    visits,
    whitewashed,
)
from peerloom.services.selector.belief.track import HALF_LIFE_S
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.catalog.entries import CatalogEntry
from peerloom.services.selector.choosing.choice import candidates_of
from peerloom.services.selector.policies.survival_model import Priors, outlook

END_S = T0 + DAY_S


def test_flapping_gains_by_the_thesis_and_not_by_survival() -> None:
    """Five 10-second visits reach the ceiling of what uptime earns; one visit of 50 seconds doesn't."""
    assert score("thesis", visits(5, 10.0), END_S) > 2 * score("thesis", visits(1, 50.0), END_S)
    assert score("survival", visits(5, 10.0), END_S) < score("survival", visits(1, 50.0), END_S)
    assert score("thesis-fixed", visits(5, 10.0), END_S) < score("thesis-fixed", visits(1, 50.0), END_S)


def test_a_thirty_second_flapper_has_at_most_half_of_a_steady_node_s_score() -> None:
    assert score("survival", flapper(), END_S) <= 0.5 * score("survival", steady(), END_S)


def test_counts_never_fade_in_the_thesis_and_do_in_survival() -> None:
    """200 trainings of long ago beat 20 of now by the thesis, whatever happened since."""
    later_s = END_S + 365 * DAY_S
    old, new = Life("10.0.0.1:1").works(200), Life("10.0.0.2:1", now_s=later_s).works(20)
    assert score("thesis", old, later_s) > 5 * score("thesis", new, later_s)
    assert score("survival", old, later_s) < score("survival", new, later_s)
    assert score("thesis-fixed", old, later_s) < score("thesis-fixed", new, later_s)


def test_strength_is_ignored_by_the_thesis_and_counts_for_survival() -> None:
    weak, strong = (
        Life("10.0.0.1:1").works(5, gflops=10.0),
        Life("10.0.0.2:1", 4).works(5, gflops=100.0, slots=4),
    )
    assert score("thesis", weak, END_S, [strong]) == score("thesis", strong, END_S, [weak])
    assert score("survival", strong, END_S, [weak]) > 20 * score("survival", weak, END_S, [strong])


def test_newcomers_starve_by_the_thesis_and_are_tried_in_bounded_rounds_by_survival() -> None:
    never = 1000
    assert rounds_until_tried("thesis", 10, never) == never
    assert rounds_until_tried("survival", 10, never) <= (2 * 10 / 4 + 1) * 20
    assert rounds_until_tried("thesis-fixed", 10, never) < never


@pytest.mark.parametrize("policy", ["survival"])
def test_a_new_name_never_raises_the_share(policy: str) -> None:
    before, after = whitewashed(policy, 1000)
    assert after <= before


def test_a_hundred_names_of_one_owner_get_no_more_than_one() -> None:
    one, many = _sybils(1), _sybils(100)
    assert 0 < many <= one


@cache
def _sybils(names: int) -> float:
    return sybils("survival", names, 300)


def test_a_bad_owner_s_new_name_is_believed_no_better_than_the_owner() -> None:
    """It does one job well under its new name: its nine refusals under the old one still count."""
    bad = Life("10.9.9.9:1").works(1, 9)
    fresh, stranger = Life("10.9.9.9:2").works(1), Life("10.8.8.8:1").works(1)
    assert score("survival", fresh, END_S, [bad]) < 0.5 * score("survival", stranger, END_S, [bad])


def test_a_declared_speed_can_lower_what_is_expected_and_never_raise_it() -> None:
    def score_of(said_gflops: float) -> float:
        columns = columns_of([Life("10.0.0.1:1").works(1, gflops=100.0), Life("10.0.0.2:1")])
        columns.put(CatalogEntry("node-000000000001", "n1", "10.0.0.2:1", 1, 1, speed_gflops=said_gflops))
        return _speed(columns)

    assert score_of(10.0) == pytest.approx(10.0)
    assert score_of(1e6) == score_of(0.0) == pytest.approx(100.0)


def test_declared_fast_heartbeats_gain_nothing_and_slow_ones_cost() -> None:
    """Of four nodes three say 10 ms: who says 1 ms is taken for 10 as they are, who says 100 ms for 100."""

    def pace_of(said_s: float) -> float:
        columns = columns_of([Life(f"10.0.0.{n}:1").works(1, gflops=100.0) for n in range(4)])
        for number in range(4):
            heartbeat_s = said_s if number == 0 else 0.010
            node_id, address = f"node-{number:012x}", f"10.0.0.{number}:1"
            columns.put(CatalogEntry(node_id, f"n{number}", address, 1, 1, heartbeat_s=heartbeat_s))
        seen = candidates_of(columns, np.arange(4), END_S, HALF_LIFE_S)
        return float(outlook(seen, Priors(), 60.0).pace[0])

    assert pace_of(0.001) == pace_of(0.010) == pace_of(0.0)
    # A step of 0.1 s and a round trip: 110 ms for them, 200 ms for it.
    assert pace_of(0.100) == pytest.approx(pace_of(0.010) * 110 / 200)


def test_declared_slots_count_at_most_twice_what_was_given_at_once() -> None:
    """1 is believed before any, beyond it as many again by the prior of acceptance, 9.5 / (9.5 + 0.5)."""

    def counted(said: int, given: int) -> float:
        columns = columns_of([Life("10.0.0.1:1", said).works(1, slots=given)])
        seen = candidates_of(columns, np.arange(1), T0, HALF_LIFE_S)
        return float(outlook(seen, Priors(), 60.0).slots[0])

    assert [counted(said, 0) for said in (0, 1, 2, 1000)] == pytest.approx([0, 1, 1.95, 1.95])
    assert [counted(said, 4) for said in (2, 4, 6, 1000)] == pytest.approx([2, 4, 5.9, 7.8])
    liar, honest = Life("10.0.0.1:1", 1000).works(1), Life("10.0.0.2:1", 1).works(1)
    assert score("survival", liar, END_S, [honest]) < 2 * score("survival", honest, END_S, [liar])


def _speed(columns: NodeColumns) -> float:
    return float(outlook(candidates_of(columns, np.arange(2), END_S, HALF_LIFE_S), Priors(), 60.0).speed[1])


def test_shares_add_up_to_all_requests() -> None:
    columns = columns_of([Life(f"10.0.0.{n}:1").works(1) for n in range(6)])
    assert share(columns, "random", set(range(6)), 50) == 1.0
