"""A proven liar is believed less than anybody honest and gets no work; one hostile voice proves nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_selector import MemorySelector, entry, event, fact, node_id

from peerloom.errors import PermissionDeniedError
from peerloom.kit.clock import to_timestamp
from peerloom.kit.interceptors import Caller, caller
from peerloom.kit.limits import LIE_PRICE
from peerloom.kit.principal import Principal, Role
from peerloom.services.selector.belief import transaction
from peerloom.services.selector.belief.formula import Reputation, Terms, Weights, update
from peerloom.services.selector.belief.lies import VOICES_WITHIN_S, barred_for_s, counted_kind
from peerloom.services.selector.belief.track import HALF_LIFE_S
from peerloom.services.selector.choosing.choice import Choice, choose
from peerloom.services.selector.policies import POLICIES
from peerloom.services.selector.policies.interface import SelectionRequest
from peerloom.v1 import selector_pb2 as pb
from peerloom.v1.registry_pb2 import NODE_EVENT_KIND_REGISTERED, NODE_EVENT_KIND_REMOVED
from peerloom.v1.selector_pb2 import (
    EVIDENCE_KIND_INTERRUPTION,
    EVIDENCE_KIND_LIE,
    EVIDENCE_KIND_SESSION_ENDED,
    EVIDENCE_KIND_TRAINING,
    EVIDENCE_KIND_TRANSFER,
    EVIDENCE_KIND_UNFINISHED,
    EVIDENCE_KIND_WRONG_ANSWER,
    EvidenceKind,
)

TRAINER = Principal(Role.TRAINER, "trainer-1", "operator")
GOOD = [EVIDENCE_KIND_TRAINING, EVIDENCE_KIND_TRANSFER, EVIDENCE_KIND_SESSION_ENDED]
BAD = [EVIDENCE_KIND_INTERRUPTION, EVIDENCE_KIND_UNFINISHED, EVIDENCE_KIND_WRONG_ANSWER]
SECONDS = st.floats(0, 1e6)


def lived(facts: list[tuple[EvidenceKind.ValueType, float]], before: Reputation | None = None) -> Reputation:
    reputation = before or Reputation()
    for kind, online_s in facts:
        reputation, _ = update(reputation, kind, Weights(), online_s=online_s)
    return reputation


def test_what_a_lie_costs_by_hand() -> None:
    """Ten trainings, then a lie: (1) 0.3*before + 0.5*10, no session, so (4) is the same; min(that, -1e6)."""
    before = lived([(EVIDENCE_KIND_TRAINING, 0.0)] * 10)
    after, terms = update(before, EVIDENCE_KIND_LIE, Weights())
    assert terms.score_new == 0.3 * before.belief + 5.0
    assert (terms.score_reduce, terms.lies, after.lies, after.unfinished) == (0.0, 1, 1, 0)
    assert after.belief == terms.belief == -1_000_000.0
    again, _ = update(after, EVIDENCE_KIND_LIE, Weights())
    assert again.belief == -2_000_000.0


@given(
    earned=st.lists(st.tuples(st.sampled_from(GOOD), SECONDS), max_size=60),
    later=st.lists(st.tuples(st.sampled_from(GOOD), SECONDS), max_size=60),
    failures=st.lists(st.tuples(st.sampled_from(BAD), SECONDS), max_size=60),
)
def test_a_liar_stays_below_every_honest_node_whatever_it_earns(
    earned: list[tuple[EvidenceKind.ValueType, float]],
    later: list[tuple[EvidenceKind.ValueType, float]],
    failures: list[tuple[EvidenceKind.ValueType, float]],
) -> None:
    liar = lived(later, lived([(EVIDENCE_KIND_LIE, 0.0)], lived(earned)))
    wretched = Reputation(interruptions=100_000, unfinished=100_000, transmissions=1, delay_total_s=60.0)
    assert liar.belief <= -LIE_PRICE < lived(failures, wretched).belief


@given(kind=st.sampled_from(GOOD + BAD), belief=st.floats(-1e9, 1e9))
def test_without_lies_the_formula_is_the_printed_one(kind: EvidenceKind.ValueType, belief: float) -> None:
    after, terms = update(Reputation(belief=belief), kind, Weights(), online_s=5.0)
    assert terms.lies == 0
    assert after.belief == terms.score_new + terms.time_score - terms.score_reduce


WRONG, LIE = EVIDENCE_KIND_WRONG_ANSWER, EVIDENCE_KIND_LIE


@pytest.mark.parametrize(
    ("reporter", "others", "counts_as"),
    [
        ("ann", set(), WRONG),
        ("bob", {"ann"}, WRONG),
        ("ann", {"ann", "bob"}, WRONG),  # her second word is no third voice
        ("cid", {"ann", "bob"}, LIE),
        ("dan", {"ann", "bob", "cid"}, WRONG),  # one lie was counted already
    ],
)
def test_the_third_voice_makes_a_lie_of_wrong_answers(
    reporter: str, others: set[str], counts_as: int
) -> None:
    assert counted_kind(WRONG, reporter, others) == counts_as
    assert counted_kind(EVIDENCE_KIND_UNFINISHED, reporter, others) == EVIDENCE_KIND_UNFINISHED


def test_how_long_lies_keep_a_node_out_by_hand() -> None:
    """1 fades to 0.5 in 14 days and to 0.25 in 28; 2 take a half-life more; 0.25 and less don't bar."""
    days = [barred_for_s(lies, HALF_LIFE_S) / 86_400 for lies in (1.0, 2.0, 0.25, 0.1)]
    assert days == [28.0, 42.0, 0.0, 0.0]


async def tell(selector: MemorySelector, who: Principal | None, kind: int, name: str, number: int = 1) -> int:
    told = pb.Evidence(
        evidence_id=name,
        node_id=node_id(number),
        kind=pb.EvidenceKind.ValueType(kind),
        time=to_timestamp(selector.clock.wall_s()),
    )
    token = caller.set(Caller(who, "ipv4:10.0.0.9:1"))
    try:
        request = pb.ReportEvidenceRequest(evidence=[told])
        return (await selector.servicer().ReportEvidence(request, None)).applied
    finally:
        caller.reset(token)


def user(owner: str) -> Principal:
    return Principal(Role.USER, f"{owner}-1", owner)


async def selector_of(*owners: str, by_address: bool = False) -> MemorySelector:
    """Nodes 1, 2, ... of these owners; one training each, so that all have the same belief."""
    selector = MemorySelector()
    for number, owner in enumerate(owners, 1):
        about = (
            entry(number, owner="", address=f"{owner}:{number}") if by_address else entry(number, owner=owner)
        )
        await selector.writer.follow([event(number, NODE_EVENT_KIND_REGISTERED, about)])
        await selector.writer.report([fact(f"trained-{number}", number)])
    return selector


def selected(selector: MemorySelector, policy: str = "thesis") -> Choice:
    return choose(
        selector.columns,
        SelectionRequest(budget=10),
        POLICIES[policy],
        np.random.default_rng(1),
        now_s=selector.clock.wall_s(),
    )


async def test_only_a_trainer_proves_a_lie_where_callers_are_known() -> None:
    selector = await selector_of("ann", "bob")
    before = selector.beliefs()[node_id(1)]
    for hostile in (
        user("eve"),
        Principal(Role.NODE, "node-1", "eve"),
        Principal(Role.INFERENCE, "i", "eve"),
    ):
        with pytest.raises(PermissionDeniedError, match="can't prove a lie"):
            await tell(selector, hostile, LIE, "no")
    assert selector.beliefs()[node_id(1)] == before
    assert await tell(selector, TRAINER, LIE, "proven") == 1
    assert selector.beliefs()[node_id(1)] == -LIE_PRICE
    explained = selector.explanations.of_node(node_id(1))
    assert explained.last.evidence.reporter == TRAINER.uri
    assert explained.last.terms.lies == 1


async def test_one_owner_s_word_costs_a_point_and_proves_nothing_however_often_it_is_given() -> None:
    """By hand: 0.3*before + 0.5 - 1 for the first, and no lie after a hundred by one owner's machines."""
    selector = await selector_of("ann")
    before = selector.beliefs()[node_id(1)]
    await tell(selector, user("eve"), WRONG, "wrong-0")
    assert selector.beliefs()[node_id(1)] == 0.3 * before + 0.5 - 1
    for number in range(1, 101):
        await tell(selector, Principal(Role.USER, f"user-{number}", "eve"), WRONG, f"wrong-{number}")
    assert selector.beliefs()[node_id(1)] > -200
    assert len(selected(selector).rows) == 1


async def test_three_owners_within_a_week_prove_a_lie_and_an_old_word_is_none() -> None:
    selector = await selector_of("ann", "bob")
    await tell(selector, user("cid"), WRONG, "1")
    selector.clock.advance(VOICES_WITHIN_S + 1)
    await tell(selector, user("dan"), WRONG, "2")
    await tell(selector, user("eve"), WRONG, "3")
    assert selector.beliefs()[node_id(1)] > -10, "cid's word is over a week old"
    await tell(selector, user("fay"), WRONG, "4")
    assert selector.beliefs()[node_id(1)] == -LIE_PRICE
    again = selector.again()
    await again.writer.load()
    assert again.beliefs() == selector.beliefs()


@pytest.mark.parametrize("policy", sorted(POLICIES))
async def test_no_policy_chooses_a_proven_liar_until_its_lie_has_faded(policy: str) -> None:
    selector = await selector_of("ann", "bob")
    await tell(selector, TRAINER, LIE, "proven")
    choice = selected(selector, policy)
    assert choice.rows == [1]
    assert [one.reason for one in choice.exclusions] == ["it is a proven liar"]
    selector.clock.advance(2 * HALF_LIFE_S + 1)
    assert sorted(selected(selector, policy).rows) == [0, 1]


async def test_one_liar_of_an_owner_may_be_broken_and_two_are_the_owner_s_doing() -> None:
    """Ann has nodes 1 to 3; at other addresses, as bob's is at the same one."""
    selector = await selector_of("ann", "ann", "ann", "bob")
    await tell(selector, TRAINER, LIE, "first", 1)
    assert sorted(selected(selector).rows) == [1, 2, 3]
    await tell(selector, TRAINER, LIE, "second", 2)
    choice = selected(selector)
    assert choice.rows == [3]
    reasons = {one.reason: one.count for one in choice.exclusions}
    assert reasons == {"it is a proven liar": 2, "other nodes of its owner are proven liars": 1}


async def test_an_owner_is_not_rid_of_a_lie_by_removing_the_node() -> None:
    selector = await selector_of("ann", "bob", "bob")
    for number in (2, 3):
        await tell(selector, TRAINER, LIE, f"lie-{number}", number)
        await selector.writer.follow([event(10 + number, NODE_EVENT_KIND_REMOVED, entry(number))])
    await selector.writer.follow([event(20, NODE_EVENT_KIND_REGISTERED, entry(4, owner="bob"))])
    assert selected(selector).rows == [0], "bob's new node is bob's"
    again = selector.again()
    await again.writer.load()
    assert selected(again).rows == [0]


async def test_a_removed_node_is_forgotten_when_it_never_lied_or_long_ago() -> None:
    selector = await selector_of("ann", "bob")
    await tell(selector, TRAINER, LIE, "lie", 2)
    selector.clock.advance(2 * HALF_LIFE_S + 1)
    for number in (1, 2):
        await selector.writer.follow([event(10 + number, NODE_EVENT_KIND_REMOVED, entry(number))])
    assert selector.explanations.highest_first(10, None) == []


async def test_liars_that_are_gone_and_liars_that_never_were_take_a_bounded_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two are kept of three that were removed, the newest; of invented nodes three, lies of them or not."""
    monkeypatch.setattr(transaction, "MAX_KEPT_LIARS", 2)
    monkeypatch.setattr(transaction, "MAX_UNMET", 3)
    selector = await selector_of("ann", "bob", "cid")
    for number in (1, 2, 3):
        await tell(selector, TRAINER, LIE, f"lie-{number}", number)
        await selector.writer.follow([event(10 + number, NODE_EVENT_KIND_REMOVED, entry(number))])
    assert set(selector.beliefs()) - {""} == {node_id(2), node_id(3)}
    for number in range(10, 20):
        await tell(selector, None, LIE, f"invented-{number}", number)
    kept = {one.node_id for one in selector.explanations.highest_first(100, None)}
    assert kept == {node_id(number) for number in (2, 3, 17, 18, 19)}


async def test_the_explanation_says_what_a_lie_means_under_any_policy() -> None:
    selector = await selector_of("ann")
    await tell(selector, TRAINER, LIE, "lie")
    selector.clock.advance(HALF_LIFE_S)
    answer = await selector.servicer().GetBelief(pb.GetBeliefRequest(node="n1", policy="survival"), None)
    assert answer.belief.terms.lies == 1
    last = answer.score_terms[-1]
    assert (last.name, last.value) == ("lies", pytest.approx(0.5))
    assert last.evidence.startswith("no policy chooses it for another 14.0 days")


def test_terms_of_a_liar_still_give_the_belief() -> None:
    terms = Terms(0, 0, 0, 0, 0, 0, 0, 0, 7.0, 2.0, -2.0, Weights(), lies=3)
    assert terms.belief == -3_000_000.0
    assert math.isclose(Terms(0, 0, 0, 0, 0, 0, 0, 0, 7.0, 2.0, -2.0, Weights()).belief, 11.0)
