"""How fast each connection may send is an even part of the narrower link at its two ends."""

import pytest

from peerloom.kit.sync_grammar import parse_sync
from peerloom.worker.mesh.pacing import FASTEST_PACED_BITS_PER_S, LinkRates, paces

ALL = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]


def paced(method: str, nodes: str, *rates: float, margin: float = 1.0) -> dict[tuple[int, int], int]:
    """For links that carry so many MB/s each way, and nodes of one letter each."""
    links = [LinkRates(8e6 * rate, 8e6 * rate) for rate in rates]
    return dict(paces(parse_sync("sync", method), list(nodes), links, margin))


@pytest.mark.parametrize("method", ["topology=direct", "wfbp-ps", "schedule=cut:131072,topology=direct"])
def test_each_of_the_others_gets_as_much(method: str) -> None:
    assert paced(method, "abc", 3, 3, 3) == dict.fromkeys(ALL, 1_500_000)
    assert paced(method, "abc", 3, 3, 3, margin=1.05) == dict.fromkeys(ALL, 1_575_000)


def test_the_narrower_end_counts() -> None:
    """To and from the third, which brings 2 MB/s, goes half of that; between the others half of theirs."""
    found = paced("topology=direct", "abc", 20, 6, 2)
    assert found == {**dict.fromkeys(ALL, 1_000_000), (0, 1): 3_000_000, (1, 0): 3_000_000}


def test_directions_differ() -> None:
    links = [LinkRates(8e6, 80e6), LinkRates(16e6, 16e6), LinkRates(80e6, 80e6)]
    found = paces(parse_sync("sync", "topology=direct"), ["a", "b", "c"], links, 1.0)
    assert found[0, 2] == 500_000, "what the first sends"
    assert found[2, 0] == 5_000_000, "what it brings"
    assert found[2, 1] == 1_000_000


@pytest.mark.parametrize("method", ["topology=ps:1", "topology=ps:a"])
def test_only_servers_meet_all(method: str) -> None:
    """Two others send to the one server, a half of what it brings each, and not to each other."""
    assert paced(method, "abc", 4, 4, 4) == dict.fromkeys([(0, 1), (0, 2), (1, 0), (2, 0)], 2_000_000)


def test_ranks_of_a_node_share_its_link() -> None:
    """Four connections lead from the first node to the others, and there is none within it."""
    found = paced("topology=direct", "aabc", 4, 4, 4, 4)
    assert found[0, 2] == found[1, 3] == 1_000_000, "a quarter of what their node sends"
    assert found[2, 3] == 1_333_333, "a third of what the third rank's node sends"
    assert (0, 1) not in found
    assert (1, 0) not in found


@pytest.mark.parametrize("method", ["wfbp-a2a", "topology=doubling", "period=16,groups=2:4,topology=direct"])
def test_where_ranks_meet_one_by_one_or_in_groups_none_is_paced(method: str) -> None:
    assert not paced(method, "abcd", 3, 3, 3, 3)


@pytest.mark.parametrize("method", ["asp,topology=direct", "ssp:2,topology=ps", "federated,topology=direct"])
def test_where_each_goes_at_its_own_pace_none_is_paced(method: str) -> None:
    assert not paced(method, "abc", 3, 3, 3)


def test_two_have_a_link_each() -> None:
    assert not paced("topology=direct", "ab", 3, 3)


def test_no_link_is_paced_while_one_is_unknown() -> None:
    assert not paced("topology=direct", "abc", 3, 3, 0)


def test_fast_links_are_left_alone() -> None:
    """Beside them a slow one is paced: to and from it."""
    fast = FASTEST_PACED_BITS_PER_S / 8e6 * 1.01
    assert not paced("topology=direct", "abc", fast, fast, fast)
    assert sorted(paced("topology=direct", "abc", fast, fast, 3)) == [(0, 2), (1, 2), (2, 0), (2, 1)]
