"""Who is dismissed on whose word, and what of a group's time audits take."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.kit.audit_rules import (
    MAX_DIFFERENCE,
    MOST_CHARGES,
    Charge,
    Judgement,
    audit_cost,
    audit_rate,
    first_targets,
    is_audited,
    is_unrepeatable,
    judge,
    least_liars,
    partner,
    relative_difference,
    targets,
)

EIGHT = "abcdefgh"


def judged(charges: list[tuple[str, str]], owners: str) -> list[Judgement]:
    """What comes of these charges (accuser, accused), one after the other; each owner has one node."""
    known: list[Charge] = []
    found = []
    for by, of in charges:
        said = Charge(by, f"node-{of}", of)
        found.append(judge(known, said, owners))
        if found[-1].is_new:
            known.append(said)
    return found


def dismissals(charges: list[tuple[str, str]], owners: str) -> set[str]:
    """Whose node is dismissed after at least one of the charges."""
    found = judged(charges, owners)
    return {of for (_, of), one in zip(charges, found, strict=True) if one.dismisses}


@pytest.mark.parametrize(
    ("owners", "needed"), [("ab", None), ("abc", 2), ("abcd", 3), ("abcde", 3), (EIGHT, 5)]
)
def test_a_node_is_dismissed_on_the_word_of_more_than_half_of_all_owners(
    owners: str, needed: int | None
) -> None:
    charges = [(by, owners[-1]) for by in owners[:-1]]
    dismisses = [one.dismisses for one in judged(charges, owners)]
    assert dismisses == [
        i + 1 == needed or (needed is not None and i + 1 > needed) for i in range(len(charges))
    ]


PAIRS = st.lists(st.tuples(st.sampled_from(EIGHT), st.sampled_from(EIGHT)), max_size=80)


@given(PAIRS, st.sets(st.sampled_from(EIGHT), max_size=4))
def test_no_half_of_the_owners_dismisses_anybody(charges: list[tuple[str, str]], liars: set[str]) -> None:
    """Whatever they say, and how often: four of eight are not more than half."""
    said = [(by, of) for by, of in charges if by in liars]
    assert dismissals(said, EIGHT) == set()


@given(PAIRS, st.sets(st.sampled_from(EIGHT), min_size=1, max_size=3), st.randoms())
def test_all_liars_go_and_nobody_else_whatever_a_minority_says(
    charges: list[tuple[str, str]], liars: set[str], chance: object
) -> None:
    """The honest accuse each liar; up to three liars of eight accuse whom they like, before and between."""
    lies = [(by, of) for by, of in charges if by in liars and by != of]
    truths = [(by, of) for by in EIGHT for of in sorted(liars) if by not in liars]
    said = lies + truths
    chance.shuffle(said)  # type: ignore[attr-defined]  # hypothesis gives random.Random
    assert dismissals(said, EIGHT) == liars
    assert not any(one.is_void for one in judged(said, EIGHT))


@pytest.mark.parametrize("count", range(3, 9))
@given(chance=st.randoms())
def test_where_all_come_to_something_else_nobody_is_dismissed(count: int, chance: object) -> None:
    """Each has looked at its neighbour first, then all accuse all in any order: it ends as void."""
    owners = EIGHT[:count]
    ring = [(owners[i], owners[(i + 1) % count]) for i in range(count)]
    rest = [(by, of) for by in owners for of in owners if by != of and (by, of) not in ring]
    chance.shuffle(rest)  # type: ignore[attr-defined]  # hypothesis gives random.Random
    found = judged(ring + rest, owners)
    assert not any(one.dismisses for one in found)
    assert found[-1].is_void


def test_a_charge_counts_once_and_not_about_oneself_or_from_outside() -> None:
    assert [one.is_new for one in judged([("a", "c"), ("a", "c"), ("b", "b"), ("x", "c")], "abc")] == [
        True,
        False,
        False,
        False,
    ]


def test_one_owner_is_heard_about_so_many_nodes_and_no_more() -> None:
    known = [Charge("a", f"node-{i}", f"owner-{i}") for i in range(MOST_CHARGES)]
    owners = {"a", "b", *(one.node_owner for one in known)}
    assert not judge(known, Charge("a", "node-b", "b"), owners).is_new
    assert judge(known[1:], Charge("a", "node-b", "b"), owners).is_new


@pytest.mark.parametrize(
    ("pairs", "fewest"),
    [
        ([], 0),
        ([("a", "x"), ("b", "x"), ("c", "x")], 1),  # x lies
        ([("a", "x"), ("x", "a")], 1),
        ([("a", "b"), ("c", "d")], 2),
        ([("a", "b"), ("b", "c"), ("c", "a")], 1.5),  # two in truth; a fraction is never more
    ],
)
def test_the_fewest_liars_that_explain_accusations(pairs: list[tuple[str, str]], fewest: float) -> None:
    assert least_liars(pairs) == fewest


def test_audits_are_dense_while_someone_is_new_and_then_rare() -> None:
    """1 / (steps + 1) until it meets 4 %, at 24 steps; where an audit takes two shares' time, 2 % at 49."""
    assert [audit_rate(steps, 1.0) for steps in (0, 1, 3, 24, 1000)] == [1.0, 0.5, 0.25, 0.04, 0.04]
    assert [audit_rate(steps, 2.0) for steps in (24, 49, 1000)] == [0.04, 0.02, 0.02]


def coin(first: int, last: int) -> bytes:
    return first.to_bytes(8, "big") + bytes(16) + last.to_bytes(8, "big")


def test_a_coin_below_the_rate_means_an_audit() -> None:
    quarter = 2**62
    assert is_audited(coin(quarter - 1, 0), 0.25)
    assert not is_audited(coin(quarter, 0), 0.25)
    assert is_audited(bytes(32), 0.001), "what is thrown for a rank that broke its word"


def test_the_coin_says_how_many_places_on_a_rank_looks() -> None:
    """Four ranks with samples, 0, 2, 3, 4: 1 + 4 mod 3 = 2 places on, so 0 looks at 3 and 3 at 0."""
    owners, counts = list("abcde"), [5, 0, 5, 5, 5]
    assert [partner(rank, owners, counts, coin(0, 4)) for rank in range(5)] == [[3], [], [4], [0], [2]]
    assert partner(0, ["a", "b", "c", "a", "e"], counts, coin(0, 4)) == [], "3 has the same owner"
    assert partner(0, ["a"], [5], coin(0, 4)) == []


@given(st.integers(2, 30), st.integers(0, 2**64 - 1))
def test_each_is_audited_by_one_other(ranks: int, last: int) -> None:
    owners = [str(rank) for rank in range(ranks)]
    found = [partner(rank, owners, [3] * ranks, coin(0, last)) for rank in range(ranks)]
    assert sorted(other for others in found for other in others) == list(range(ranks))
    assert all([rank] != others for rank, others in enumerate(found))


def test_an_audit_takes_as_long_as_the_slowest_computes_what_it_drew() -> None:
    """Shares 1, 2 and 4. One place on: 2/1, 4/2, 1/4: 2. Two: 4/1, 1/2, 2/4: 4. On average 3."""
    assert audit_cost(tuple("abc"), (1, 2, 4)) == 3.0
    assert audit_cost(tuple("abcd"), (8, 8, 0, 8)) == 1.0
    # Of two owners: one place on 4/4 and 1/4 (0 doesn't look at 1), two 4/1 (1 not at 0) and 4/4.
    assert audit_cost(tuple("aab"), (1, 4, 4)) == 2.5
    assert audit_cost(("a",), (8,)) == 1.0


def test_a_difference_is_measured_by_what_was_computed() -> None:
    """3 apart of 6; of gradients as small as rounding, by a thousandth of the largest, 2: 0.001 of 0.002."""
    assert relative_difference(3.0, 6.0, 6.0) == 0.5
    assert relative_difference(0.001, 1e-9, 2.0) == pytest.approx(0.5)
    assert relative_difference(0.0, 0.0, 0.0) == 0.0
    assert relative_difference(1.0, 0.0, 0.0) == MAX_DIFFERENCE
    assert relative_difference(math.inf, 1.0, 1.0) == MAX_DIFFERENCE


def test_a_rank_looks_at_other_owners_who_have_samples() -> None:
    owners, counts = ["a", "b", "a", "c"], [4, 0, 4, 4]
    assert targets(0, owners, counts) == [3]
    assert targets(3, owners, counts) == [0, 2]
    assert first_targets(0, owners, counts) == [0, 3]
    assert first_targets(3, owners, counts) == [3, 0]
    assert first_targets(1, owners, counts) == [], "without samples it can't try its own share"


def test_a_task_cannot_be_repeated_on_the_word_of_more_than_half() -> None:
    assert not is_unrepeatable({"a", "b"}, {"a", "b", "c", "d"})
    assert is_unrepeatable({"a", "b", "c"}, {"a", "b", "c", "d"})
    assert not is_unrepeatable({"x", "y", "z"}, {"a", "b", "c", "d"})
