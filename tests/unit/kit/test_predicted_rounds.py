"""Predicted rounds of local steps beside what a hand computes: their exchange, delays, and groups."""

from dataclasses import replace

import pytest
from predicted_settings import ALL, layers, network

from peerloom.kit.averaged_parts import AveragedParts
from peerloom.kit.rank_groups import RankGroups
from peerloom.kit.sync_method import DIRECT
from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork, Trunk
from peerloom.kit.sync_model.prediction import predict
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.sync_setting import SyncSetting


def test_a_period_spreads_one_exchange_over_its_steps() -> None:
    """Two steps of 2 s compute, then 6 s of ring: 5 s a step, and half the bytes."""
    found = predict(SyncScheme(period=2, merge_bytes=ALL), SyncSetting(network(), layers(4, backward_s=2)))
    assert (found.step_s, found.exposed_s, found.sent_bytes) == (pytest.approx(5), pytest.approx(3), 3e6)


@pytest.mark.parametrize(("backward_s", "step_s"), [(2, 3), (3, 3), (4, 4)])
def test_a_delay_hides_an_exchange_behind_the_next_period_s_steps(backward_s: float, step_s: float) -> None:
    """6 s of ring beside two steps, whatever these take: only what is longer than both is waited for."""
    scheme = SyncScheme(period=2, merge_bytes=ALL, is_delayed=True)
    found = predict(scheme, SyncSetting(network(), layers(4, backward_s=backward_s)))
    assert (found.step_s, found.exposed_s) == (pytest.approx(step_s), pytest.approx(step_s - backward_s))


def test_groups_average_by_two_messages_each_and_that_spreads_over_the_period() -> None:
    """4 ranks in pairs, 4 MB: each gives 2 MB and gets 2, twice, with 10 ms a trip; three times in 4 steps.

    The exchange of all is the ring's 6 s, once in 4 steps.
    """
    net = replace(network(delay_s=0.01), library_waits=False)
    scheme = SyncScheme(period=4, merge_bytes=ALL, topology=DIRECT, groups=RankGroups(2, 1))
    found = predict(scheme, SyncSetting(net, layers(4, backward_s=1)))
    assert found.step_s == pytest.approx(1 + (2 * 3.01 + 3 * 2 * 2.01) / 4)
    assert found.sent_bytes == pytest.approx((6e6 + 3 * 4e6) / 4)
    assert found.exposed_s == pytest.approx(found.step_s - 1)


def test_parts_are_averaged_by_all_with_fewer_bytes_and_that_spreads_over_the_period() -> None:
    """4 ranks, 4 MB: half of it is 3 x 0.5 MB out and in, twice, with 10 ms a trip; three times in 4 steps.

    The exchange of all is the ring's 6 s, once in 4 steps.
    """
    net = replace(network(delay_s=0.01), library_waits=False)
    scheme = SyncScheme(period=4, merge_bytes=ALL, topology=DIRECT, partial=AveragedParts(2, 1))
    found = predict(scheme, SyncSetting(net, layers(4, backward_s=1)))
    assert found.step_s == pytest.approx(1 + (2 * 3.01 + 3 * 2 * 1.51) / 4)
    assert found.sent_bytes == pytest.approx((6e6 + 3 * 3e6) / 4)
    assert found.exposed_s == pytest.approx(found.step_s - 1)


def test_computing_hides_a_part_that_is_taken_up_later() -> None:
    """Of the 3.02 s that 3 averages take each, 1 s is computed meanwhile."""
    net = replace(network(delay_s=0.01), library_waits=False)
    at_once, late = (
        predict(
            SyncScheme(period=4, merge_bytes=ALL, topology=DIRECT, partial=partial),
            SyncSetting(net, layers(4, backward_s=1)),
        )
        for partial in (AveragedParts(2, 1), AveragedParts(2, 1, late=1))
    )
    assert at_once.step_s - late.step_s == pytest.approx(3 * 1 / 4)
    assert late.sent_bytes == at_once.sent_bytes


def test_groups_of_a_site_leave_its_way_to_the_others_alone() -> None:
    """Two sites of two at 80 Mbit/s inside share 8 Mbit/s to the other one: by site 4 MB take 0.4 s.

    Groups that cross it share it. Of two occasions one has pairs of neighbours, who are at one site; in the
    other each site sends 2 + 2 MB at once, twice.
    """
    fast, slow = AccessLink(8e7, 8e7), AccessLink(8e6, 8e6)
    trunks = (Trunk((0, 1), slow), Trunk((2, 3), slow))
    net = SyncNetwork((fast,) * 4, ((0.0,) * 4,) * 4, nodes=("a", "a", "b", "b"), trunks=trunks)
    setting = SyncSetting(net, layers(4, backward_s=1))
    alone = SyncScheme(period=2, merge_bytes=ALL, topology=DIRECT)
    [without, by_site, mixed] = (
        predict(replace(alone, groups=groups), setting).exposed_s * 2
        for groups in (None, RankGroups(0, 1), RankGroups(2, 1))
    )
    assert by_site - without == pytest.approx(0.4)
    assert mixed - without == pytest.approx((0.4 + 8) / 2)


def test_a_delay_hides_an_exchange_behind_averages_of_groups_too() -> None:
    """6 s of ring beside four steps of 1 s and three averages of 4 s: nothing of it is waited for."""
    scheme = SyncScheme(period=4, merge_bytes=ALL, topology=DIRECT, groups=RankGroups(2, 1), is_delayed=True)
    found = predict(scheme, SyncSetting(network(), layers(4, backward_s=1)))
    assert found.step_s == pytest.approx(1 + 3 * 4 / 4)
