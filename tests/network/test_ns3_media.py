"""The ns-3 program's media between real hosts: what is set is what packets meet."""

import itertools
import signal
import time
from collections.abc import Callable

import pytest
from emulated_lab import Network
from emulated_traffic import (
    all_send,
    carried_bits_per_s,
    drained,
    flooded,
    reaches,
    round_trip_ms,
    settled,
    silent,
    tcp_bits_per_s,
)

pytestmark = [pytest.mark.network, pytest.mark.timeout(60)]
BOTH_MEDIA = pytest.mark.parametrize("medium", ["csma", "wan"])
Start = Callable[..., Network]


# --- media against their settings


@pytest.mark.parametrize(
    ("flags", "expected_ms"),
    [
        ({"medium": "csma", "delay": "10ms"}, 20),
        ({"medium": "wan", "delay": "15ms"}, 60),
        ({"medium": "wan", "link": ["0:1Gbps:5ms:0", "1:1Gbps:20ms:0"]}, 50),
    ],
)
def test_delay_is_as_set(start: Start, flags: dict[str, object], expected_ms: float) -> None:
    """A wan's delay is that of an access link, of which there are two each way; csma's is the channel's."""
    network = start(rate="1Gbps", **flags)
    assert round_trip_ms(network, *network.hosts) == pytest.approx(expected_ms, rel=0.05)


@pytest.mark.parametrize(("medium", "overhead"), [("csma", 14 + 4 + 12), ("wan", 0)])
@pytest.mark.parametrize("mtu", [1500, 9000])
def test_rate_is_as_set(start: Start, medium: str, overhead: int, mtu: int) -> None:
    """csma counts Ethernet's header, check sequence and gap; a wan's rate is that of IP packets."""
    network = start(medium=medium, rate="20Mbps", mtu=mtu)
    allowed = 20e6 * (mtu - 28) / (mtu + overhead)
    assert carried_bits_per_s(network, *network.hosts, mtu - 28, allowed) == pytest.approx(allowed, rel=0.05)


@BOTH_MEDIA
def test_tcp_gets_what_the_rate_allows(start: Start, medium: str) -> None:
    network = start(medium=medium, rate="50Mbps")
    # 52 bytes of headers a segment; on csma also acknowledgements share the channel: about 1 %.
    allowed = 50e6 * (9000 - 52) / 9030
    assert tcp_bits_per_s(network, *network.hosts) == pytest.approx(allowed, rel=0.05)


def test_mtu_of_65000_carries_whole_packets(start: Start) -> None:
    one, other = start(medium="csma", rate="10Gbps", mtu=65000).hosts
    assert one.ping_ms(other, size=65000 - 28) > 0


@BOTH_MEDIA
def test_loss_is_as_set_and_one_way(start: Start, medium: str) -> None:
    """2000 frames at 0.3 have a standard deviation of 0.01, so 0.05 is five of them."""
    network = start(medium=medium, rate="1Gbps", seed=7)
    network.do("loss", nodes=[1], ratio=0.3)
    one, other = network.hosts
    with one.udp() as out, other.udp() as into:
        for sent in range(50, 2001, 50):
            for _ in range(50):
                out.sendto(bytes(100), into.getsockname())
            counters = settled(network, 1, sent)
        assert counters["dropped_packets"] / 2000 == pytest.approx(0.3, abs=0.05)
        for _ in range(20):
            into.sendto(b"back", out.getsockname())
        assert settled(network, 0, 20)["dropped_packets"] == 0


# --- commands while it runs


def test_rate_and_delay_of_one_access_link_change(start: Start) -> None:
    network = start(medium="wan", rate="20Mbps", delay="5ms")
    one, other = network.hosts
    network.do("delay", nodes=[1], seconds=0.025)
    assert round_trip_ms(network, one, other) == pytest.approx(60, rel=0.05)
    network.do("delay", seconds=0)
    network.do("rate", nodes=[1], bits_per_s=8e6)
    allowed = 8e6 * 1000 / 1028
    assert carried_bits_per_s(network, one, other, 1000, allowed) == pytest.approx(allowed, rel=0.05)


def test_rate_and_delay_of_the_channel_change_under_load(start: Start) -> None:
    network = start(medium="csma", rate="200Mbps", hosts=3)
    one, other, away = network.hosts
    network.do("leave", nodes=[2])
    with flooded([one, other], 40e6):
        for rate in itertools.islice(itertools.cycle([50e6, 100e6]), 40):
            network.do("rate", bits_per_s=rate)
    network.do("rate", nodes=[0, 1, 2], bits_per_s=20e6)
    network.do("join", nodes=[2])
    drained(network)
    assert reaches(away, one)
    # The rate is also that of a node which was away when it changed.
    allowed = 20e6 * 8972 / 9030
    assert carried_bits_per_s(network, away, one, 8972, allowed) == pytest.approx(allowed, rel=0.05)
    drained(network)
    network.do("delay", seconds=0.01)
    assert round_trip_ms(network, one, other) == pytest.approx(20, rel=0.05)


@BOTH_MEDIA
def test_a_node_leaves_and_joins(start: Start, medium: str) -> None:
    network = start(medium=medium)
    one, other = network.hosts
    assert reaches(one, other)
    network.do("leave", nodes=[1])
    assert not network.node(1)["up"]
    assert silent(one, other)
    assert silent(other, one)
    network.do("join", nodes=[1])
    assert network.node(1)["up"]
    assert reaches(one, other)
    assert reaches(other, one)


@BOTH_MEDIA
def test_200_absences_under_load_leave_the_network_healthy(start: Start, medium: str) -> None:
    """Queues are full and others send when a node leaves: that wedges a csma device of ns-3 for ever."""
    network = start(medium=medium, rate="50Mbps", delay="10us", hosts=3, nodes=6, background="10Mbps")
    with flooded(network.hosts, 80e6):
        for toggle in range(200):
            nodes = [toggle % 3, 3 + toggle % 3]
            network.do("leave", nodes=nodes)
            gone_s = network.do("stats")["simulated_s"]
            while network.do("stats")["simulated_s"] < gone_s + 0.005:
                pass
            network.do("join", nodes=nodes)
        # Under load still: any small frame, such as one about a closed port, frees a wedged device.
        assert all_send(network)
    network.do("leave", nodes=[3, 4, 5])
    drained(network)
    one, other = network.hosts[:2]
    allowed = 50e6 * 8972 / 9030
    assert carried_bits_per_s(network, one, other, 8972, allowed) == pytest.approx(allowed, rel=0.05)


@BOTH_MEDIA
def test_a_partition_cuts_both_ways_and_heals(start: Start, medium: str) -> None:
    network = start(medium=medium, hosts=3)
    one, other, outside = network.hosts
    network.do("partition", sets=[[0], [1]])
    assert silent(one, other)
    assert silent(other, one)
    # A node in no set hears all and is heard by all.
    assert all(
        reaches(*pair) for pair in [(one, outside), (outside, one), (other, outside), (outside, other)]
    )
    network.do("partition", sets=[[0, 1], [2]])
    assert reaches(one, other)
    assert silent(one, outside)
    network.do("heal")
    assert all(reaches(*pair) for pair in itertools.permutations(network.hosts, 2))


# --- figures


@BOTH_MEDIA
def test_counters_are_the_bytes_that_hosts_sent(start: Start, medium: str) -> None:
    """14 bytes of Ethernet, 20 of IP and 8 of UDP around 1000, as the host's own interface counts them."""
    network = start(medium=medium, hosts=3)
    before = network.do("stats")["nodes"]
    with network.hosts[0].udp() as out, network.hosts[1].udp() as into:
        for _ in range(100):
            out.sendto(bytes(1000), into.getsockname())
        settled(network, 1, before[1]["received_packets"] + 100)
    after = network.do("stats")["nodes"]
    names = ("sent_bytes", "sent_packets", "received_bytes", "received_packets", "dropped_packets")
    changes = [[new[name] - old[name] for name in names] for old, new in zip(before, after, strict=True)]
    assert changes == [[104_200, 100, 0, 0, 0], [0, 0, 104_200, 100, 0], [0] * 5]
    assert [node["tap"] for node in after] == ["pl0", "pl1", "pl2"]


@BOTH_MEDIA
def test_untapped_nodes_relay_and_store_at_the_rate_asked_for(start: Start, medium: str) -> None:
    network = start(medium=medium, nodes=12, background="40Mbps", mtu=1500)
    before = network.do("stats")
    after = before
    while after["simulated_s"] < before["simulated_s"] + 1:
        after = network.do("stats")
    sent = [
        node["sent_bytes"] - old["sent_bytes"]
        for node, old in zip(after["nodes"], before["nodes"], strict=True)
    ]
    bits_per_s = 8 * sum(sent[2:]) / (after["simulated_s"] - before["simulated_s"])
    assert bits_per_s == pytest.approx(40e6, rel=0.1)
    assert sent[:2] == [0, 0]
    assert all(node["relayed_packets"] > 0 and node["stored_packets"] > 0 for node in after["nodes"][2:])
    assert "relayed_packets" not in after["nodes"][0]


def test_lag_is_wall_clock_less_simulated_time(start: Start) -> None:
    """A program that is stopped falls behind, says so afterwards, and catches up."""
    network = start(medium="csma")
    stats = network.do("stats")
    assert stats["simulated_s"] + stats["lag_s"] == pytest.approx(stats["wall_s"], abs=0.01)
    assert 0 <= stats["lag_s"] <= stats["lag_worst_s"]
    assert stats["cpu_s"] > 0
    network.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    assert silent(*network.hosts)
    stopped_s = time.monotonic() - began
    network.process.send_signal(signal.SIGCONT)
    assert reaches(*network.hosts)
    drained(network)
    after = network.do("stats")
    assert after["lag_worst_s"] >= stopped_s - 0.1
    assert after["lag_s"] < after["lag_worst_s"]
