"""Trials and pooled records go by the owner in a node's certificate, and by its host without a door."""

import numpy as np
import pytest
from memory_selector import entry, node_id

from benchmarks.flaws import DAY_S, T0, Life
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.choosing.choice import candidates_of, choose
from peerloom.services.selector.messages import event_from_message
from peerloom.services.selector.policies import find_policy
from peerloom.services.selector.policies.interface import SelectionRequest
from peerloom.services.selector.policies.trials import Trials, whose_turn
from peerloom.v1.registry_pb2 import NODE_STATE_ALIVE, Node, NodeSpec, WatchNodesResponse

NOW_S = T0 + DAY_S


def nodes_of(*owners: str, host_each: bool = True) -> NodeColumns:
    """Node 1, 2, ... of these owners, each at a host of its own or all at one."""
    columns = NodeColumns()
    for number, owner in enumerate(owners, 1):
        host = f"10.0.{number}.1" if host_each else "10.0.0.1"
        columns.put(entry(number, owner=owner, address=f"{host}:7402"))
    return columns


def turns(columns: NodeColumns, places: int) -> list[int]:
    past = candidates_of(columns, np.arange(len(columns)), NOW_S, 1e9).known
    return sorted(whose_turn(past, np.ones(len(columns), np.bool_), places).tolist())


def test_many_addresses_of_one_certified_owner_wait_for_one_turn() -> None:
    """Eve's twenty nodes at twenty addresses get one of three places; ann and bob have the others."""
    columns = nodes_of("ann", "bob", *["eve"] * 20)
    assert turns(columns, 3) == [0, 1, 2]
    assert turns(columns, 10) == [0, 1, 2], "there are three owners, so three turns"


def test_owners_behind_one_address_have_a_turn_each() -> None:
    assert turns(nodes_of("ann", "bob", "cid", host_each=False), 3) == [0, 1, 2]
    assert turns(nodes_of("", "", "", host_each=False), 3) == [0], "without a door an address is one owner"


def test_the_rate_of_trials_counts_certified_owners() -> None:
    """One of two owners is unknown: 1 / (0.05 + 0.15 / 2) = 8, however many nodes the unknown one brings."""
    for names in (1, 50):
        columns = nodes_of("ann", *["eve"] * names)
        life = Life("").works(5)
        columns.set_record(node_id(1), life.reputation, life.track)
        past = candidates_of(columns, np.arange(len(columns)), NOW_S, 1e9).known
        assert Trials().period(past) == 8


def test_a_new_node_of_a_bad_owner_is_no_newcomer_at_another_address() -> None:
    """Eve's first node refused nine of ten; her second one, elsewhere, waits behind the stranger bob."""
    columns = nodes_of("eve", "eve", "bob")
    bad = Life("").works(1, 9)
    columns.set_record(node_id(1), bad.reputation, bad.track)
    choice = choose(
        columns,
        SelectionRequest(budget=1),
        find_policy("survival"),
        np.random.default_rng(1),
        now_s=NOW_S,
    )
    assert choice.rows == [2]


@pytest.mark.parametrize("owner", ["", "ann"])
def test_the_owner_comes_from_the_registry_s_record(owner: str) -> None:
    node = Node(node_id=node_id(1), spec=NodeSpec(name="n1", owner=owner), state=NODE_STATE_ALIVE)
    assert event_from_message(WatchNodesResponse(node=node)).entry.owner == owner


def test_a_lab_s_own_machines_fill_all_places() -> None:
    """Eight equal machines of one owner: a job that wants four gets four, and eight if it wants them all."""
    columns = nodes_of(*["lab"] * 8)
    life = Life("").works(5)
    for number in range(1, 9):
        columns.set_record(node_id(number), life.reputation, life.track)
    for wanted in (4, 8):
        request, rng = SelectionRequest(budget=wanted), np.random.default_rng(1)
        choice = choose(columns, request, find_policy("survival"), rng, now_s=NOW_S)
        assert len(set(choice.rows)) == wanted
