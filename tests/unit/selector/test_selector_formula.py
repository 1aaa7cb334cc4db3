"""The thesis's formulas: by hand, to the last digit, and as laws that hold for all histories."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_selector import KINDS

from peerloom.errors import ConfigurationError
from peerloom.kit.limits import LIE_PRICE
from peerloom.services.selector.belief.formula import Reputation, Terms, Weights, check_weights, update
from peerloom.v1.selector_pb2 import (
    EVIDENCE_KIND_INTERRUPTION,
    EVIDENCE_KIND_LIE,
    EVIDENCE_KIND_SESSION_ENDED,
    EVIDENCE_KIND_TRAINING,
    EVIDENCE_KIND_TRANSFER,
    EVIDENCE_KIND_UNFINISHED,
    EvidenceKind,
)

PRINTED = Weights()
Fact = tuple[EvidenceKind.ValueType, float, float, float]

# A life of one node with the printed weights. Each line: the fact (kind, delay_s, online_s, open_online_s)
# and what follows from formulas (1) to (4), worked out with pencil and a table of logarithms:
# score_new, time_score, score_reduce, belief.
BY_HAND: list[tuple[Fact, tuple[float, float, float, float]]] = [
    # A transfer of 0.2 s, 99 s after it came: ln(99 + 1) = 4.605170.
    # (1) 0.3*0 + 0.1*1 + 0.5*0 - 1*0.2 = -0.1   (2) 4.605170   (3) 0 + 0 - 4.605170
    # (4) -0.1 + 4.605170 + 4.605170 = 9.110340
    ((EVIDENCE_KIND_TRANSFER, 0.2, 0, 99), (-0.1, 4.605170, -4.605170, 9.110340)),
    # A training, 199 s after it came: ln(199 + 1) = 5.298317; the mean delay is still 0.2.
    # (1) 0.3*9.110340 + 0.1*1 + 0.5*1 - 0.2 = 2.733102 + 0.4 = 3.133102   (3) -5.298317
    # (4) 3.133102 + 2*5.298317 = 13.729737
    ((EVIDENCE_KIND_TRAINING, 0, 0, 199), (3.133102, 5.298317, -5.298317, 13.729737)),
    # A second transfer, of 1.0 s: the mean delay is (0.2 + 1.0)/2 = 0.6. ln(299 + 1) = 5.703782.
    # (1) 0.3*13.729737 + 0.1*2 + 0.5*1 - 0.6 = 4.118921 + 0.1 = 4.218921   (3) -5.703782
    # (4) 4.218921 + 2*5.703782 = 15.626486
    ((EVIDENCE_KIND_TRANSFER, 1.0, 0, 299), (4.218921, 5.703782, -5.703782, 15.626486)),
    # A refusal at 399 s: ln(400) = 5.991465.
    # (1) 0.3*15.626486 + 0.2 + 0.5 - 0.6 = 4.787946   (3) 0 + 1 - 5.991465 = -4.991465
    # (4) 4.787946 + 5.991465 + 4.991465 = 15.770875
    ((EVIDENCE_KIND_UNFINISHED, 0, 0, 399), (4.787946, 5.991465, -4.991465, 15.770875)),
    # It drops out after 499 s: ln(500) = 6.214608 is kept, no session is open, one interruption.
    # (1) 0.3*15.770875 + 0.1 = 4.831262   (2) 6.214608 + ln(0 + 1) = 6.214608
    # (3) 1 + 1 - 6.214608 = -4.214608   (4) 4.831262 + 6.214608 + 4.214608 = 15.260479
    ((EVIDENCE_KIND_INTERRUPTION, 0, 499, 0), (4.831262, 6.214608, -4.214608, 15.260479)),
    # It comes back for 59 s and leaves with notice: ln(60) = 4.094345; 6.214608 + 4.094345 = 10.308953,
    # above the ceiling of 10.   (1) 0.3*15.260479 + 0.1 = 4.678144   (3) 1 + 1 - 10 = -8
    # (4) 4.678144 + 10 + 8 = 22.678144
    ((EVIDENCE_KIND_SESSION_ENDED, 0, 59, 0), (4.678144, 10.0, -8.0, 22.678144)),
]


def test_a_node_s_life_agrees_with_the_thesis_computed_by_hand() -> None:
    reputation = Reputation()
    for number, ((kind, delay_s, online_s, open_online_s), expected) in enumerate(BY_HAND, 1):
        reputation, terms = update(
            reputation, kind, PRINTED, delay_s=delay_s, online_s=online_s, open_online_s=open_online_s
        )
        found = (terms.score_new, terms.time_score, terms.score_reduce, reputation.belief)
        assert found == pytest.approx(expected, abs=2e-6), f"update {number}"
        assert reputation.updates == number
    counts = (reputation.transmissions, reputation.trainings, reputation.interruptions, reputation.unfinished)
    assert counts == (2, 1, 1, 1)


def test_a_newcomer_is_believed_in_with_zero() -> None:
    assert Reputation().belief == 0


SECONDS = st.floats(0, 1e9)
HONEST = [kind for kind in KINDS if kind != EVIDENCE_KIND_LIE]
HONEST_FACTS = st.lists(st.tuples(st.sampled_from(HONEST), SECONDS, SECONDS, SECONDS), max_size=30)
FACTS = st.lists(st.tuples(st.sampled_from(KINDS), SECONDS, SECONDS, SECONDS), max_size=30)
NUMBERS = st.floats(-100, 100)
WEIGHTS = st.builds(
    Weights,
    score_old=st.floats(-0.99, 0.99),
    transmission=NUMBERS,
    train=NUMBERS,
    delay=NUMBERS,
    time_score_cap=st.floats(0, 100),
)


def live(facts: list[Fact], weights: Weights = PRINTED) -> tuple[Reputation, list[Terms]]:
    reputation, all_terms = Reputation(), []
    for kind, delay_s, online_s, open_online_s in facts:
        reputation, terms = update(
            reputation, kind, weights, delay_s=delay_s, online_s=online_s, open_online_s=open_online_s
        )
        all_terms.append(terms)
    return reputation, all_terms


def again(t: Terms) -> float:
    """The schema's formulas over the returned terms, as any reader of them would write it."""
    w = t.weights
    score_new = (
        w.score_old * t.score_old
        + w.transmission * t.transmissions
        + w.train * t.trainings
        - w.delay * t.delay_s
    )
    time_score = min(w.time_score_cap, t.ended_online_log + math.log(t.open_online_s + 1))
    score_reduce = t.interruptions + t.unfinished - time_score
    assert (score_new, time_score, score_reduce) == (t.score_new, t.time_score, t.score_reduce)
    belief = score_new + time_score - score_reduce
    return min(belief, -1_000_000 * t.lies) if t.lies else belief


@given(facts=FACTS, weights=WEIGHTS)
def test_the_terms_give_the_belief_to_the_last_digit(facts: list[Fact], weights: Weights) -> None:
    reputation, all_terms = live(facts, weights)
    beliefs = [again(terms) for terms in all_terms]
    assert beliefs == [terms.belief for terms in all_terms]
    assert [0.0, *beliefs][:-1] == [terms.score_old for terms in all_terms]
    assert reputation.belief == [0.0, *beliefs][-1]


@given(facts=FACTS)
def test_uptime_earns_from_zero_to_the_ceiling(facts: list[Fact]) -> None:
    assert all(0 <= terms.time_score <= PRINTED.time_score_cap for terms in live(facts)[1])


@given(facts=HONEST_FACTS, online_s=SECONDS)
def test_an_interruption_costs_one_more_than_a_goodbye(facts: list[Fact], online_s: float) -> None:
    before, _ = live(facts)
    polite, _ = update(before, EVIDENCE_KIND_SESSION_ENDED, PRINTED, online_s=online_s)
    rude, _ = update(before, EVIDENCE_KIND_INTERRUPTION, PRINTED, online_s=online_s)
    assert rude.belief == pytest.approx(polite.belief - 1)
    assert rude._replace(belief=0, interruptions=0) == polite._replace(belief=0, interruptions=0)


@given(facts=FACTS, weights=WEIGHTS)
def test_a_belief_stays_within_what_the_weights_allow(facts: list[Fact], weights: Weights) -> None:
    """A geometric series: no update adds more than `step`, and |score_old| < 1 shrinks the rest."""
    reputation, _ = live(facts, weights)
    count = len(facts)
    step = (abs(weights.transmission) + abs(weights.train) + 1) * count
    step += abs(weights.delay) * 1e9 + 2 * weights.time_score_cap
    step += LIE_PRICE * reputation.lies
    assert abs(reputation.belief) <= step / (1 - abs(weights.score_old)) * (1 + 1e-9)


@pytest.mark.parametrize("score_old", [1.0, -1.0, 1.5, -7.0])
def test_a_weight_that_lets_beliefs_grow_without_end_is_refused_with_the_formula(score_old: float) -> None:
    with pytest.raises(ConfigurationError, match=r"without bound") as refused:
        check_weights(replace(PRINTED, score_old=score_old))
    assert "score_new = score_old*belief_before" in refused.value.message


@pytest.mark.parametrize("name", ["score_old", "transmission", "train", "delay", "time_score_cap"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e7])
def test_a_weight_that_is_no_usable_number_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=name):
        check_weights(replace(PRINTED, **{name: value}))


def test_a_negative_ceiling_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="time_score_cap"):
        check_weights(replace(PRINTED, time_score_cap=-1))
