"""Choosing: who is a candidate, why the others are not, and how each policy ranks."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_selector import entry, node_id

from peerloom.errors import NotFoundError
from peerloom.services.selector.catalog.arrays import RowIndex
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.catalog.entries import CatalogEntry
from peerloom.services.selector.choosing.choice import Choice, choose
from peerloom.services.selector.policies import POLICIES, find_policy
from peerloom.services.selector.policies.interface import Candidates, SelectionRequest
from peerloom.v1.registry_pb2 import (
    NODE_STATE_DEAD,
    NODE_STATE_LEFT,
    NODE_STATE_SUSPECT,
    NODE_STATE_UNSPECIFIED,
)


def columns_of(*entries: CatalogEntry, beliefs: list[float] | None = None) -> NodeColumns:
    columns = NodeColumns()
    for one in entries:
        columns.put(one)
    for one, belief in zip(entries, beliefs or [], strict=False):
        columns.set_belief(one.node_id, belief)
    return columns


def chosen(columns: NodeColumns, policy: str = "thesis", seed: int = 1, **request: Any) -> Choice:
    wish = SelectionRequest(**{"budget": 1000, **request})
    return choose(columns, wish, find_policy(policy), np.random.default_rng(seed))


def names(columns: NodeColumns, choice: Choice) -> list[str]:
    return [columns.names[row] for row in choice.rows]


@pytest.mark.parametrize(
    ("unfit", "request_", "reason"),
    [
        (entry(2, state=NODE_STATE_UNSPECIFIED), {}, "unknown to the registry"),
        (entry(2, state=NODE_STATE_SUSPECT), {}, "suspected"),
        (entry(2, state=NODE_STATE_DEAD), {}, "dead"),
        (entry(2, state=NODE_STATE_LEFT), {}, "left with notice"),
        (entry(2, draining=True), {}, "draining"),
        (entry(2), {"excluded": frozenset({"n2"})}, "excluded by the request"),
        (entry(2), {"excluded": frozenset({node_id(2), "nobody"})}, "excluded by the request"),
        (entry(2, slots=1), {"min_slots": 2}, "lends fewer than 2 slots"),
        (entry(2, accelerators=("cpu",)), {"accelerator_kind": "cuda"}, "no accelerator of kind 'cuda'"),
        (entry(2, labels={"room": "a"}), {"labels": {"room": "b"}}, "label room=b"),
    ],
)
def test_who_does_not_fit_is_left_out_with_the_reason(
    unfit: CatalogEntry, request_: dict[str, Any], reason: str
) -> None:
    fit = entry(1, slots=2, accelerators=("cuda",), labels={"room": "b"})
    columns = columns_of(fit, unfit)
    choice = chosen(columns, **request_)
    assert names(columns, choice) == ["n1"]
    assert choice.candidates == 1
    (exclusion,) = choice.exclusions
    assert reason in exclusion.reason
    assert (exclusion.count, exclusion.examples) == (1, [1])


def test_each_node_is_counted_once_and_only_the_first_few_are_named() -> None:
    dead = [entry(n, state=NODE_STATE_DEAD, draining=True) for n in range(5)]
    choice = chosen(columns_of(*dead, entry(9, draining=True), entry(10)))
    assert [(e.count, e.examples) for e in choice.exclusions] == [(5, [0, 1, 2]), (1, [5])]
    assert choice.candidates == 1


def test_the_best_of_those_that_others_were_preferred_to_are_told_first() -> None:
    columns = columns_of(*map(entry, range(4)), beliefs=[1.5, -2.0, 3.2139, 0.0])
    left = chosen(columns, budget=2).outranked()
    assert left is not None
    assert (left.reason, left.count, left.examples) == ("others ranked higher", 2, [3, 1])
    drawn = chosen(columns, "random", budget=3).outranked()
    assert drawn is not None
    assert (drawn.reason, drawn.count, drawn.examples) == ("others were drawn", 1, [])
    assert chosen(columns, budget=4).outranked() is None


def test_nobody_to_choose_is_an_answer_and_no_error() -> None:
    for policy in POLICIES:
        empty = chosen(NodeColumns(), policy)
        assert (empty.rows, empty.reasons, empty.candidates) == ([], [], 0)
        assert chosen(columns_of(entry(1, state=NODE_STATE_LEFT)), policy).rows == []


def test_thesis_takes_the_highest_beliefs_and_says_so() -> None:
    columns = columns_of(*map(entry, range(4)), beliefs=[1.5, -2.0, 3.2139, 0.0])
    choice = chosen(columns, budget=3)
    assert names(columns, choice) == ["n2", "n0", "n3"]
    assert choice.reasons == [
        "belief 3.214 is the highest of 4 candidates",
        "belief 1.500 is the 2nd highest of 4 candidates",
        "belief 0.000 is the 3rd highest of 4 candidates",
    ]


def test_thesis_names_ties_and_breaks_them_by_chance() -> None:
    columns = columns_of(*map(entry, range(12)), beliefs=[5.0] + [1.0] * 11)
    choices = [chosen(columns, seed=seed, budget=3) for seed in range(300)]
    tied = "belief 1.000 is the 2nd highest of 12 candidates, shared by 11: their order is chance"
    assert choices[0].reasons == ["belief 5.000 is the highest of 12 candidates", tied, tied]
    assert all(choice.rows[0] == 0 for choice in choices)
    seconds = Counter(choice.rows[1] for choice in choices)
    assert set(seconds) == set(range(1, 12))  # each of the eleven is second at some time


BELIEFS = st.lists(st.sampled_from([-1.5, 0.0, 0.5, 2.0, 7.25]), max_size=40)


@settings(deadline=None)  # eight policies in each example; a busy machine is no failure
@given(beliefs=BELIEFS, budget=st.integers(1, 50), seed=st.integers(0, 2**64 - 1))
def test_every_policy_keeps_the_interface_s_promises(beliefs: list[float], budget: int, seed: int) -> None:
    candidates = Candidates(np.array(beliefs, np.float64), np.ones(len(beliefs), np.int32))
    request = SelectionRequest(budget=budget)
    for policy in POLICIES.values():
        first, second = (policy.select(candidates, request, np.random.default_rng(seed)) for _ in range(2))
        indices = first.indices.tolist()
        assert len(indices) == len(first.reasons) == min(budget, len(beliefs))
        assert len(set(indices)) == len(indices)
        assert indices == second.indices.tolist(), "the same seed gives the same choice"


@given(beliefs=BELIEFS, budget=st.integers(1, 50), seed=st.integers(0, 1000))
def test_thesis_agrees_with_sorting_everything(beliefs: list[float], budget: int, seed: int) -> None:
    candidates = Candidates(np.array(beliefs, np.float64), np.ones(len(beliefs), np.int32))
    selection = find_policy("thesis").select(
        candidates, SelectionRequest(budget), np.random.default_rng(seed)
    )
    assert [beliefs[i] for i in selection.indices] == sorted(beliefs, reverse=True)[:budget]


def test_random_reaches_everybody_whatever_is_believed() -> None:
    columns = columns_of(*map(entry, range(5)), beliefs=[100.0, 0.0, 0.0, 0.0, -100.0])
    firsts = Counter(chosen(columns, "random", seed, budget=1).rows[0] for seed in range(500))
    assert all(firsts[row] > 50 for row in range(5))  # 100 are expected of each


def test_an_unknown_policy_is_answered_with_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="Did you mean thesis"):
        find_policy("tesis")


def test_a_name_that_moves_to_another_node_is_found_there() -> None:
    columns = columns_of(entry(1, name="a"), entry(2, name="b"))
    columns.put(entry(1, name="c"))
    columns.put(entry(2, name="a"))
    found = {name: columns.node_id_of(name) for name in ("a", "c")}
    assert found == {"a": node_id(2), "c": node_id(1)}
    with pytest.raises(NotFoundError):
        columns.node_id_of("b")


def test_columns_grow_beyond_their_first_capacity() -> None:
    columns = columns_of(*map(entry, range(3000)), beliefs=[float(n) for n in range(3000)])
    assert len(columns) == 3000
    assert names(columns, chosen(columns, budget=2)) == ["n2999", "n2998"]


@given(st.lists(st.tuples(st.integers(0, 5), st.sets(st.sampled_from("abc"))), max_size=40))
def test_the_index_always_tells_the_last_words_of_each_row(puts: list[tuple[int, set[str]]]) -> None:
    index: RowIndex[str] = RowIndex()
    truth: list[set[str]] = []
    for wanted, words in puts:
        row = min(wanted, len(truth))
        if row == len(truth):
            truth.append(set())
        truth[row] = words
        index.put(row, tuple(sorted(words)))
        for word in "abc":
            assert index.has(word).tolist() == [word in said for said in truth]
