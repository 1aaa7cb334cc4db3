"""Sites that measured ways show, what their ranks share, and what a prediction makes of it: by hand."""

from collections.abc import Mapping

import pytest

from peerloom.kit.sync_method import DIRECT, HIERARCHY, RING, SyncMethod
from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork, Trunk
from peerloom.kit.sync_model.bucket_topologies import topologies_of
from peerloom.kit.sync_model.scheme import SyncScheme, scheme_of
from peerloom.kit.sync_model.sync_choice import EXACT, ranked
from peerloom.services.trainer.generations.measured_sites import named_sites, trunks_of
from peerloom.services.trainer.generations.sync_measures import methods_for, setting_of
from peerloom.v1.trainer_pb2 import MeasuredLayer, MeasuredLink, WorkerMeasured

FAST, SLOW = 1e9, 25e6


def ways(near: Mapping[tuple[int, int], float], ranks: int, far: float) -> dict[tuple[int, int], float]:
    """Each pair's rate in both directions: `far`, but for those that are near."""
    pairs = [(i, j) for i in range(ranks) for j in range(i + 1, ranks)]
    return {way: near.get(pair, far) for pair in pairs for way in (pair, pair[::-1])}


def test_two_machines_of_two_ranks_are_two_sites_that_share_a_line_each() -> None:
    """Ranks 0 and 3, and 1 and 2, are measured at once, as are 0 and 2, and 1 and 3: 25 Mbit/s each."""
    rates = ways({(0, 1): FAST, (2, 3): FAST}, 4, SLOW)
    line = AccessLink(50e6, 50e6)
    assert trunks_of(rates, 4) == (Trunk((0, 1), line), Trunk((2, 3), line))


def test_a_way_back_that_is_slower_has_a_rate_of_its_own() -> None:
    rates = ways({(0, 1): FAST, (2, 3): FAST}, 4, SLOW)
    rates |= {(0, 2): 10e6, (1, 3): 10e6, (0, 3): 10e6, (1, 2): 10e6}
    assert [trunk.link for trunk in trunks_of(rates, 4)] == [AccessLink(20e6, 50e6), AccessLink(50e6, 20e6)]


def test_who_is_alone_shares_nothing() -> None:
    rates = ways({(0, 1): FAST}, 3, SLOW)
    assert [trunk.ranks for trunk in trunks_of(rates, 3)] == [(0, 1)]


@pytest.mark.parametrize(
    ("near", "far"),
    [
        ({}, SLOW),  # all alike
        ({(0, 1): 2.9 * SLOW}, SLOW),  # not another kind of way
        ({(0, 1): 40e9}, 4e9),  # no lines
        ({(0, 1): FAST, (1, 2): FAST, (2, 3): FAST}, SLOW),  # a chain, whose ends are far
        ({(i, j): FAST for i in range(4) for j in range(4)}, SLOW),
    ],
)
def test_else_there_are_no_sites(near: dict[tuple[int, int], float], far: float) -> None:
    assert trunks_of(ways(near, 4, far), 4) == ()


def test_sites_are_called_by_their_nodes_and_a_node_of_several_ranks_needs_no_name() -> None:
    line = AccessLink(1.0, 1.0)
    two = (Trunk((0, 1), line), Trunk((2, 3), line))
    assert named_sites(two, ["ada", "ada", "bob", "bob"]) == ()
    assert named_sites(two, ["ada", "bob", "cyd", "dan"]) == (("ada", "bob"), ("cyd", "dan"))
    assert named_sites(two, ["ada", "ada", "bob", "cyd"]) == (("bob", "cyd"),)
    assert named_sites(two, ["ada", "bob", "bob", "cyd"]) is None, "bob is at both"
    assert named_sites((), ["ada", "bob"]) is None


LINE = AccessLink(50e6, 50e6)
SITED = SyncNetwork(
    (AccessLink(FAST, FAST),) * 4,
    ((0.0,) * 4,) * 4,
    nodes=("ada", "ada", "bob", "bob"),
    trunks=(Trunk((0, 1), LINE), Trunk((2, 3), LINE)),
)


@pytest.mark.parametrize(
    ("topology", "crossing"),
    [
        # Of a bucket of 4,000 bytes, a round after the other, what leaves ada: each of two ranks sends a
        # quarter to both of bob's, and its own part's sum to both; or their leader a half, twice; or, in each
        # of a ring's six rounds, rank 1 a quarter.
        (DIRECT, [4000, 4000]),
        (HIERARCHY, [0, 2000, 2000, 0]),
        (RING, [6 * 1000]),
    ],
)
def test_what_crosses_a_line_takes_its_time_there(topology: str, crossing: list[int]) -> None:
    (way,) = topologies_of(SyncScheme(topology=topology), SITED, [4000])
    rounds = way.rounds(1000)
    longest_s = [max(seconds for _, seconds in one.busy) for one in rounds]
    inside_s = [0.0, 0.0, 0.0, 0.0] if topology != HIERARCHY else [4000 * 8 / FAST, 0.0, 0.0, 4000 * 8 / FAST]
    expected = [max(8 * sent / 50e6, own) for sent, own in zip(crossing, inside_s, strict=False)]
    assert longest_s == pytest.approx(expected)


def measured(near: set[tuple[int, int]]) -> list[WorkerMeasured]:
    """Four ranks that have measured, with a model of 10 MB."""
    found = []
    for rank in range(4):
        links = [
            MeasuredLink(rank=other, delay_s=1e-3, sent_bits_per_s=rate, received_bits_per_s=rate)
            for other in range(rank + 1, 4)
            for rate in [FAST if (rank, other) in near else SLOW]
        ]
        found.append(WorkerMeasured(links=links))
    found[0].layers.append(MeasuredLayer(parameters=2_500_000, forward_s=0.01, backward_s=0.02))
    return found


def test_a_job_on_two_machines_is_offered_sums_by_site_and_they_are_predicted_to_be_faster() -> None:
    setting = setting_of(measured({(0, 1), (2, 3)}), ["ada", "ada", "bob", "bob"])
    assert setting is not None
    order = ranked(methods_for(EXACT, setting, bears_rounds=True), setting)
    assert order[0].method.topology == HIERARCHY
    assert order[0].method.sites == ()
    best = {one.method.topology: one.prediction.step_s for one in reversed(order)}
    assert best[DIRECT] > 1.5 * best[HIERARCHY]


def test_where_all_ways_are_alike_no_sites_are_offered() -> None:
    setting = setting_of(measured(set()), ["ada", "bob", "cyd", "dan"])
    assert setting is not None
    assert not any(one.topology == HIERARCHY for one in methods_for(EXACT, setting, bears_rounds=True))
    assert scheme_of(SyncMethod()).topology == RING
