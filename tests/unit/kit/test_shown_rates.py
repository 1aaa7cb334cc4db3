"""What links carry at least, by hand: two ranks, 1 MB, and a second of computing."""

import pytest

from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork, Trunk
from peerloom.kit.sync_model.layer_times import LayerTimes
from peerloom.kit.sync_model.prediction import predict
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.shown_rates import at_least, shown_rate
from peerloom.kit.sync_model.sync_setting import SyncSetting

DIRECT = SyncScheme(topology="direct")
RING = SyncScheme()


def setting(rate: float, delay_s: float = 0.0) -> SyncSetting:
    """Half of 1 MB there and half back are 1 s by 8 Mbit/s, and each way a delay."""
    layer = LayerTimes("one", 250_000, 0.5, 0.5)
    return SyncSetting(SyncNetwork.uniform(2, rate, delay_s), (layer,))


def test_a_step_of_half_the_exchange_shows_links_of_twice_the_rate() -> None:
    """1 s of computing and 8 s of exchange by 1 Mbit/s; 5 s show 2 Mbit/s, whatever the delay."""
    assert predict(DIRECT, setting(1e6)).step_s == pytest.approx(9)
    assert shown_rate(DIRECT, setting(1e6), 5.0) == pytest.approx(2e6, rel=0.02)
    assert shown_rate(DIRECT, setting(1e6, 0.25), 5.5) == pytest.approx(2e6, rel=0.02)
    assert predict(RING, at_least(setting(1e6), 4e6)).step_s == pytest.approx(3)


@pytest.mark.parametrize("step_s", [9.0, 20.0])
def test_a_longer_step_shows_nothing_of_links(step_s: float) -> None:
    assert shown_rate(DIRECT, setting(1e6), step_s) == 0


@pytest.mark.parametrize(("step_s", "factor"), [(1.5, 17), (1.25, 34), (1.01, 64), (0.5, 64)])
def test_of_a_step_shorter_than_delays_allow_all_that_is_waited_for_has_its_part(
    step_s: float, factor: float
) -> None:
    """8.5 s of waiting, of which half a second are delays: 1.5 s of a step are half a second of waiting."""
    assert shown_rate(DIRECT, setting(1e6, 0.25), step_s) == pytest.approx(1e6 * factor)


def test_a_step_that_hardly_depends_on_rates_says_nothing_of_them() -> None:
    """3 s of 4 are delays and computing, so that a quarter depends on rates; then a seventh."""
    assert shown_rate(DIRECT, setting(8e6, 1.0), 3.5) == pytest.approx(16e6, rel=0.02)
    assert shown_rate(DIRECT, setting(8e6, 2.5), 6.5) == 0


def test_a_step_says_nothing_of_links_that_seemed_faster_than_those_it_waited_for() -> None:
    """Rank 1's link seemed a quarter of rank 0's; half the exchange's time shows a half, no more."""
    fast, slow = AccessLink(4e6, 4e6), AccessLink(1e6, 1e6)
    uneven = SyncSetting(SyncNetwork((fast, slow), ((0.0, 0.0), (0.0, 0.0))), setting(1e6).layers)
    shown = shown_rate(DIRECT, uneven, 5.0)
    assert shown == pytest.approx(2e6, rel=0.02)
    links = at_least(uneven, shown).network.links
    assert links == (fast, AccessLink(shown, shown))


def test_what_a_site_shares_and_a_topology_s_own_network_carry_as_much() -> None:
    own = SyncNetwork.uniform(2, 2e6)
    network = SyncNetwork(
        own.links, own.delay_s, servers=own.links[:1], trunks=(Trunk((0, 1), own.links[0]),)
    )
    found = at_least(SyncSetting(network, setting(1e6).layers, by_topology={"ring": own}), 6e6)
    for one in (found.network.links[0], found.network.servers[0], found.network.trunks[0].link):
        assert (one.up_bits_per_s, one.down_bits_per_s) == (6e6, 6e6)
    assert found.network_of("ring").links[1].up_bits_per_s == 6e6
