"""Which node is best as the only server, by hand."""

import pytest

from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
from peerloom.kit.sync_model.central_node import central_node

MB = 1_000_000


def network(*of_ranks: tuple[float, float], nodes: tuple[str, ...] = ()) -> SyncNetwork:
    """Links as (Mbit/s, ms to the middle)."""
    links = [AccessLink(rate * 1e6, rate * 1e6) for rate, _ in of_ranks]
    found = SyncNetwork.of_access(links, [delay / 1e3 for _, delay in of_ranks])
    return SyncNetwork(found.links, found.delay_s, nodes=nodes)


def test_of_little_the_nearest_is_best() -> None:
    """1 kB: 12 and 22 ms of round trip at most, where the far ones' is 20 + 20."""
    assert central_node(network((10, 10), (10, 1), (10, 5), (10, 10)), 1000) == "node-2"


def test_of_much_the_widest_is() -> None:
    """1 MB to and from three others: 24 Mbit by 10 Mbit/s take longer than 8 Mbit each by theirs."""
    assert central_node(network((10, 1), (10, 1), (100, 20), (10, 1)), MB) == "node-3"


def test_a_link_wider_than_all_others_need_is_no_better() -> None:
    """The others' 10 Mbit/s hold it up, so the nearer of two that are wide enough is taken."""
    assert central_node(network((1000, 20), (10, 5), (10, 5), (30, 1)), MB) == "node-4"


def test_a_way_back_that_is_narrow_counts() -> None:
    links = (AccessLink(1e6, 1e8), AccessLink(5e7, 5e7), AccessLink(1e8, 1e8))
    flat = SyncNetwork.uniform(3, 1e8)
    assert central_node(SyncNetwork(links, flat.delay_s), MB) == "node-3"


def test_of_equals_it_is_the_first_and_a_node_counts_once() -> None:
    nodes = ("ada", "ada", "bob", "bob")
    assert central_node(network(*[(10, 1)] * 4, nodes=nodes), MB) == "ada"


@pytest.mark.parametrize("nodes", [("ada",) * 3, ("ada", "bob")])
def test_where_nobody_is_nearer_there_is_none(nodes: tuple[str, ...]) -> None:
    assert central_node(network(*[(10, 1)] * len(nodes), nodes=nodes), MB) is None
