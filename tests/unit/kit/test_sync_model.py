"""A predicted step beside what a hand computes: each topology's closed form, and small schedules."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicted_settings import ALL, BSP, MEGABYTE, layers, network, step

from peerloom.errors import InvalidArgumentError
from peerloom.kit.sync_grammar import parse_sync
from peerloom.kit.sync_method import DIRECT, DOUBLING, FP16, HIERARCHY, SERVERS, SyncMethod
from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
from peerloom.kit.sync_model.bucket_topologies import topologies_of
from peerloom.kit.sync_model.buckets import GradientBucket, buckets_of
from peerloom.kit.sync_model.layer_times import LayerTimes, even_layers
from peerloom.kit.sync_model.message_rounds import MessageRound
from peerloom.kit.sync_model.prediction import predict
from peerloom.kit.sync_model.scheme import SyncScheme, scheme_of
from peerloom.kit.sync_model.step_simulation import BucketPlan, StepPlan, simulate
from peerloom.kit.sync_model.sync_setting import CodecSpeed, SyncSetting


def test_a_ring_takes_two_rounds_less_than_twice_the_ranks() -> None:
    """2 (4 - 1) rounds of 1 MB, each after a round trip of 20 ms: 6 * 1.02 s, and 6 MB from each rank."""
    found = step(BSP, network(delay_s=0.01), 4)
    assert found.step_s == found.exposed_s == pytest.approx(6.12)
    assert found.sent_bytes == 6e6
    without = step(BSP, replace(network(delay_s=0.01), library_waits=False), 4)
    assert without.step_s == pytest.approx(6.06)


def test_a_direct_exchange_takes_two_rounds_whatever_the_ranks() -> None:
    """Each sends 3 parts of 1 MB and gets 3, twice; two trips of 10 ms, over sockets of our own."""
    found = step(replace(BSP, topology=DIRECT), network(delay_s=0.01), 4)
    assert found.step_s == pytest.approx(2 * (3 + 0.01))
    assert found.sent_bytes == 6e6


def test_recursive_doubling_takes_a_trip_for_each_time_that_the_ranks_double() -> None:
    """Four swap 1 MB twice, each after 10 ms. Of six two give before, and get back after it.

    Those who are given nothing swap at once, so only three of the four trips wait for each other.
    """
    found = step(replace(BSP, topology=DOUBLING), network(delay_s=0.01), 1)
    assert found.step_s == pytest.approx(2 * 1.01)
    assert found.sent_bytes == 2e6
    six = step(replace(BSP, topology=DOUBLING), network(6, delay_s=0.01), 1)
    assert six.step_s == pytest.approx(4 + 3 * 0.01)
    assert six.sent_bytes == 3e6, "two swaps, and what it gives back"


def test_recursive_doubling_waits_for_the_longest_chain_of_its_swaps() -> None:
    """Ranks 0 to 3 are 1, 1, 1 and 50 ms from a switch. 2 and 3 swap first: 51 ms; then 1 and 3: 51 more.

    Rank 1 waits for 3, which began its second swap after 51 ms; empty messages cost nothing else.
    """
    net = SyncNetwork.of_access(network(4).links, [0.001, 0.001, 0.001, 0.05])
    assert step(replace(BSP, topology=DOUBLING), net, 1e-5).step_s == pytest.approx(0.102, abs=1e-4)


def test_a_codec_of_recursive_doubling_works_before_each_swap() -> None:
    """A second to encode a megabyte: before both swaps, and once more for what all have in the end."""
    speeds = {FP16: CodecSpeed(1 / MEGABYTE, 0.0)}
    setting = SyncSetting(network(), layers(1), speeds)
    found = predict(replace(BSP, topology=DOUBLING, codec=FP16), setting)
    assert found.compression_s == pytest.approx(3)
    assert found.exposed_s == pytest.approx(2 * 0.5), "half a megabyte each time"


def test_sums_by_site_go_up_across_and_down() -> None:
    """Two sites of two: 1 MB up, half of one across twice, and 1 MB down; 1 ms inside and 10 ms between."""
    rows = tuple(
        tuple(0.0 if i == j else 0.001 if i // 2 == j // 2 else 0.01 for j in range(4)) for i in range(4)
    )
    net = replace(network(), delay_s=rows, nodes=("a", "a", "b", "b"))
    found = step(replace(BSP, topology=HIERARCHY), net, 1)
    assert found.step_s == pytest.approx(1.001 + 2 * 0.51 + 1.001)
    assert found.sent_bytes == 2e6, "a leader: half of it twice, and all of it down"
    named = replace(BSP, topology=HIERARCHY, sites=(("node-1", "node-2"), ("node-3", "node-4")))
    assert step(named, replace(net, nodes=()), 1).step_s == pytest.approx(found.step_s)


def test_without_company_sums_by_site_are_the_direct_exchange() -> None:
    net = network(delay_s=0.01)
    found = [step(replace(BSP, topology=one), net, 4).step_s for one in (HIERARCHY, DIRECT)]
    assert found[0] == pytest.approx(found[1])


def test_only_leaders_encode_between_sites() -> None:
    """A second to encode a megabyte, and none to decode: a leader's whole sum, and half of it again."""
    setting = SyncSetting(
        replace(network(), nodes=("a", "a", "b", "b")), layers(1), {FP16: CodecSpeed(1 / MEGABYTE, 0.0)}
    )
    found = predict(replace(BSP, topology=HIERARCHY, codec=FP16), setting)
    assert found.compression_s == pytest.approx(1.5)
    assert found.exposed_s == pytest.approx(1 + 2 * 0.25 + 0.5), "only what goes up is as it was"


def test_servers_that_are_workers_too_carry_both() -> None:
    """4 MB, two owners of 2 MB: an owner gets 3 * 2 MB and sends 1 * 2 MB, then the other way round."""
    found = step(replace(BSP, topology=SERVERS, owners=2), network(delay_s=0.01), 4)
    assert found.step_s == pytest.approx(2 * (6 + 0.01))
    assert found.sent_bytes == 2e6 + 6e6


def test_servers_on_chosen_nodes_carry_all_by_their_own_links() -> None:
    """4 MB to node 3 alone: it gets 3 * 4 MB and sends as much, over a link of a quarter of the rate.

    The others' links, and where they are, change nothing. With node-2 beside it each owns 2 MB: the slow one
    gets 3 * 2 MB in 24 s, and sends 2 MB of its own to node-2 meanwhile.
    """
    net = replace(
        network(delay_s=0.01), links=(*network(2).links, AccessLink(2e6, 2e6), AccessLink(8e6, 8e6))
    )
    named = replace(BSP, topology=SERVERS, server_nodes=("node-3",))
    assert step(named, net, 4).step_s == pytest.approx(2 * (48 + 0.01))
    assert step(named, net, 4).sent_bytes == 12e6
    both = replace(named, server_nodes=("node-3", "node-2"))
    assert step(both, net, 4).step_s == pytest.approx(2 * (24 + 0.01))


def test_servers_on_all_nodes_are_as_none_is_named() -> None:
    every = replace(BSP, topology=SERVERS, server_nodes=("node-1", "node-2", "node-3", "node-4"))
    found, plain = step(every, network(), 4), step(replace(BSP, topology=SERVERS), network(), 4)
    assert found == plain


def test_a_codec_s_work_on_chosen_nodes_is_that_of_their_parts() -> None:
    """A second to encode a megabyte, one server: it encodes 1 MB as all do, and the sum of 1 MB."""
    setting = SyncSetting(network(), layers(1), {FP16: CodecSpeed(1 / MEGABYTE, 0.0)})
    named = replace(BSP, topology=SERVERS, codec=FP16, server_nodes=("node-2",))
    assert predict(named, setting).compression_s == pytest.approx(2)
    both = replace(named, server_nodes=("node-2", "node-3"))
    assert predict(both, setting).compression_s == pytest.approx(1.5)


def test_one_server_of_many_workers_is_the_bottleneck() -> None:
    """2 n D: 4 workers push 1 MB each through the server's link, and pull through it: 8 s, not 2."""
    assert step(replace(BSP, topology=SERVERS), network(servers=1), 1).step_s == pytest.approx(8)
    assert step(replace(BSP, topology=SERVERS), network(servers=4), 1).step_s == pytest.approx(2)


def test_a_ring_is_as_slow_as_its_slowest_message() -> None:
    """Rank 2 sends at half the rate: each of 6 rounds of 1 MB takes 2 s."""
    slow = AccessLink(4e6, 8e6)
    net = replace(network(), links=(*network(2).links, slow, AccessLink(8e6, 8e6)))
    assert step(BSP, net, 4).step_s == pytest.approx(12)
    # In the direct exchange, too, it sends 3 MB at half the rate, twice; what it gets comes at the full rate.
    assert step(replace(BSP, topology=DIRECT), net, 4).step_s == pytest.approx(12)


def test_a_server_in_the_middle_is_nearer_to_all() -> None:
    """Ranks 0, 10 and 50 ms from a switch: rank 0 is 50 ms from the farthest, rank 1 is 60.

    Of two servers the first has a small bucket, and both half of 0.4 MB: twice 0.2 MB come to each. A ring
    makes 4 rounds, each a round trip between the farthest neighbours.
    """
    links = network(3).links
    net = SyncNetwork.of_access(links, (0.0, 0.01, 0.05))
    owner = replace(BSP, topology=SERVERS, owners=1)
    assert step(owner, net, 0.0001).step_s == pytest.approx(2 * 0.05, abs=0.001)
    assert step(replace(owner, owners=2), net, 0.0001).step_s == pytest.approx(2 * 0.05, abs=0.001)
    assert step(replace(owner, owners=2), net, 0.4).step_s == pytest.approx(2 * (0.4 + 0.06))
    assert step(BSP, net, 0.0001).step_s == pytest.approx(4 * 2 * 0.06, abs=0.001)
    far = replace(owner, owners=0, server_nodes=("node-2",))
    assert step(far, net, 0.0001).step_s == pytest.approx(2 * 0.06, abs=0.001)


def test_ranks_that_are_alike_are_one_pair_of_links() -> None:
    slow = AccessLink(4e6, 8e6)
    net = replace(network(), links=(*network(3).links, slow))
    alike, unequal = (topologies_of(SyncScheme(topology=DIRECT), one, [1])[0] for one in (network(), net))
    assert alike.links == ("sends", "receives")
    assert unequal.links == (
        "rank 0 sends",
        "rank 0 receives",
        "rank 3 sends",
        "rank 3 receives",
    )


def test_half_duplex_links_carry_one_direction_at_a_time() -> None:
    half = replace(network(), is_full_duplex=False)
    assert step(BSP, half, 4).step_s == pytest.approx(12)
    assert step(replace(BSP, topology=DIRECT), half, 4).step_s == pytest.approx(12)


def test_gradients_that_leave_early_hide_behind_the_backward_pass() -> None:
    """Two layers of 2 s backward; each gradient of 1 MB takes 6 * 0.25 s around the ring.

    The last layer's is gone before the first layer's appears at 4 s, which is there at 5.5 s. After the pass
    all takes until 7 s.
    """
    early = step(SyncScheme(), network(), 1, 1, backward_s=2)
    assert early.step_s == pytest.approx(5.5)
    assert early.compute_s == 4
    assert early.exposed_s == pytest.approx(1.5)
    assert step(BSP, network(), 1, 1, backward_s=2).step_s == pytest.approx(7)
    assert step(SyncScheme(merge_bytes=ALL), network(), 1, 1, backward_s=2).step_s == pytest.approx(7)


def test_pushes_and_pulls_of_two_buckets_pass_each_other() -> None:
    """Servers apart: at 1 s and 2 s 1 MB is complete; pushes 1 to 2 and 2 to 3, pulls 2 to 3 and 3 to 4.

    Rounds around a ring block those of the next bucket: 1 to 2.5 and 2.5 to 4.
    """
    found = step(SyncScheme(topology=SERVERS), network(servers=4), 1, 1, backward_s=1)
    assert found.step_s == pytest.approx(4)
    pulls = [one for one in found.timeline if one.what.startswith("pull") and "rank 0" in one.resource]
    assert [(one.start_s, one.end_s) for one in pulls] == [
        (pytest.approx(2), pytest.approx(3)),
        (pytest.approx(3), pytest.approx(4)),
    ]


def test_both_rounds_of_the_direct_exchange_hide() -> None:
    """Backward 4 + 4 s, two buckets of 4 MB, 3 s a round: the last layer's take 4 s to 10 s, 2 s too long.

    Then the links carry the first layer's two rounds: 10 + 2 * 3 s.
    """
    assert step(SyncScheme(topology=DIRECT), network(), 4, 4, backward_s=4).step_s == pytest.approx(16)


def test_first_layers_go_first_and_the_next_pass_waits_for_its_own_layer() -> None:
    """Forward and backward 1 s a layer, two layers; 3 MB and 1 MB in pieces of 1 MB of 1 s (two ranks).

    Backward of layer 1 ends at t, of layer 0 at t + 1. The piece of layer 1 is sent meanwhile, those of layer
    0 until t + 4; then both forward passes and layer 1's backward: t + 7 is the same place one step later.
    """
    both = layers(3, 1, forward_s=1, backward_s=1)
    setting = SyncSetting(network(2), both)
    assert predict(SyncScheme(cut_bytes=1_000_000), setting).step_s == pytest.approx(7)
    # Behind one large last layer it pays: layer 1's 3 MB begin to leave at t, layer 0's 1 MB goes ahead at
    # t + 1. They are there at t + 4 and t + 2: forward 0 until t + 3, forward 1 until t + 5, and backward 1.
    other = SyncSetting(network(2), layers(1, 3, forward_s=1, backward_s=1))
    assert predict(SyncScheme(cut_bytes=1_000_000), other).step_s == pytest.approx(6)
    # Whole layers one after the other: layer 1 from t to t + 3, layer 0 to t + 4, and only then both passes.
    assert predict(SyncScheme(), other).step_s == pytest.approx(7)
    # So it is with pieces where the model has all wait for all, as with clipping.
    whole = replace(other, waits_by_layer=False)
    assert predict(SyncScheme(cut_bytes=1_000_000), whole).step_s == pytest.approx(7)


def test_the_second_step_is_as_all_later_ones() -> None:
    """Three unequal layers in pieces: from the second backward pass on its ends are one period apart."""
    shape = layers(2, 1, 3, forward_s=0.5, backward_s=1)
    plans = tuple(
        BucketPlan(
            bucket, (MessageRound("push", ((0, 0.3),), 0.2, ()), MessageRound("pull", ((1, 0.5),), 0, ())), 2
        )
        for bucket in buckets_of(SyncScheme(cut_bytes=1_000_000), shape)
    )
    ends = simulate(StepPlan(shape, plans, ("up", "down"), True), steps=6).backward_end_s
    periods = [after - before for before, after in pairwise(ends)]
    assert periods == pytest.approx([periods[0]] * 5)
    assert periods[0] > sum(layer.forward_s + layer.backward_s for layer in shape)


def test_a_codec_costs_processors_time_and_saves_bytes() -> None:
    """1 MB as 16 bits around a ring of 2: 0.5 MB; encoding 250,000 values 0.25 s, decoding 0.5 s."""
    setting = SyncSetting(network(2), layers(1), {"fp16": CodecSpeed(1e-6, 2e-6)})
    found = predict(replace(BSP, codec="fp16"), setting)
    assert (found.step_s, found.compression_s) == (pytest.approx(1.25), pytest.approx(0.75))
    assert found.exposed_s == pytest.approx(0.5)
    # Over owners each also decodes 2 parts of a half and encodes one: 0.5 + 0.125 s more.
    found = predict(replace(BSP, codec="fp16", topology=DIRECT), setting)
    assert found.compression_s == pytest.approx(0.75 + 0.5 + 0.125)


def test_powersgd_sends_two_factors_one_after_the_other() -> None:
    """A layer of 1,000 x 1,000 values: each factor of rank 2 has 2,000, 8 kB, 8 ms between two ranks.

    Encoding takes 1 us a value and rank, half of it before each factor, and decoding 0.5 us: 2 + 1 s.
    """
    setting = SyncSetting(network(2, delay_s=0.01), layers(4), {"powersgd": CodecSpeed(1e-6, 0.5e-6)})
    scheme = replace(BSP, topology=DIRECT, codec="powersgd", low_rank=2)
    found = predict(scheme, setting)
    assert found.compression_s == pytest.approx(3)
    # Each exchange has two rounds, in which a rank sends half of the factor, and two trips.
    assert found.exposed_s == pytest.approx(2 * (0.008 + 0.02))
    assert found.sent_bytes == 2 * 8000
    names = [one.what.rpartition(" ")[0] for one in found.timeline if one.resource != "receives"]
    assert names[-7:] == ["factor", "push", "pull", "project", "push", "pull", "multiply"]
    around = predict(replace(scheme, topology="ring"), setting)
    assert around.sent_bytes == 2 * 8000
    assert around.exposed_s == pytest.approx(2 * (0.008 + 2 * 0.02))


def test_powersgd_s_second_factors_travel_together_behind_the_last_bucket() -> None:
    """Two layers of 1 MB, sides of 500, rank 1: 500 values as each bucket's first, 1,000 as second ones.

    100 values of a third layer travel as they are, with the first factors of its bucket.
    """
    speeds = {"powersgd": CodecSpeed(0.0, 0.0)}
    three = (LayerTimes("", 100, 0, 0), *layers(1, 1))
    scheme = SyncScheme(merge_bytes=1_000_000, codec="powersgd", low_rank=1)
    found = predict(scheme, SyncSetting(network(2), three, speeds))
    assert found.sent_bytes == 4 * (500 + 500 + 100 + 1000)
    whole = predict(replace(scheme, codec_from=1_000_001), SyncSetting(network(2), three, speeds))
    assert whole.sent_bytes == 4 * (500_000 + 100)
    cut = replace(scheme, merge_bytes=0, cut_bytes=1_000_000, topology=DIRECT)
    assert predict(cut, SyncSetting(network(2), three, speeds)).sent_bytes == found.sent_bytes


def test_small_layers_travel_as_they_are_beside_the_encoded_ones() -> None:
    """1 MB as 16 bits and 0.4 MB as it is: 0.9 MB around a ring of two; only the large one is encoded."""
    setting = SyncSetting(network(2), layers(0.4, 1), {"fp16": CodecSpeed(1e-6, 2e-6)})
    found = predict(replace(BSP, codec="fp16", codec_from=500_000), setting)
    assert found.sent_bytes == 900_000
    assert found.compression_s == pytest.approx(0.75)
    assert found.exposed_s == pytest.approx(0.9 - 0.4, abs=0.4)
    assert predict(replace(BSP, codec="fp16", codec_from=2_000_000), setting).sent_bytes == 1_400_000
    assert predict(replace(BSP, codec="fp16", codec_from=1), setting).sent_bytes == 700_000


def test_contention_slows_computing_while_links_are_busy() -> None:
    """Backward 2 + 2 s; from 2 to 3.5 s a ring runs, so 0.75 s of work are done: the pass ends at 4.75."""
    setting = SyncSetting(network(), layers(1, 1, backward_s=2), contention=0.5)
    assert predict(SyncScheme(), setting).step_s == pytest.approx(4.75 + 1.5)


def test_a_topology_meets_the_network_as_its_own_probe_found_it() -> None:
    """Directly at half the rate: 12 s in place of 6; around the ring as before."""
    setting = SyncSetting(network(), layers(4), by_topology={DIRECT: SyncNetwork.uniform(4, 4e6)})
    assert predict(replace(BSP, topology=DIRECT), setting).step_s == pytest.approx(12)
    assert predict(BSP, setting).step_s == pytest.approx(6)
    with pytest.raises(InvalidArgumentError, match="ranks of direct is 2"):
        replace(setting, by_topology={DIRECT: network(2)})


def test_buckets_are_filled_from_the_last_layer_on() -> None:
    """A first one of 1 MB, then of 2 MB; the layer without parameters is in none."""
    shape = layers(1, 1, 0, 1, 1)
    scheme = SyncScheme(merge_bytes=2_000_000, first_merge_bytes=1_000_000)
    assert buckets_of(scheme, shape) == (
        GradientBucket(4, 4, MEGABYTE),
        GradientBucket(1, 3, 2 * MEGABYTE),
        GradientBucket(0, 0, MEGABYTE),
    )


def test_what_is_merged_is_cut_into_pieces_of_all_its_layers() -> None:
    """Of 1 MB at least, in pieces of that at most: the last two layers' 1.5 MB are one bucket, two pieces."""
    scheme = SyncScheme(merge_bytes=1_000_000, cut_bytes=1_000_000)
    assert buckets_of(scheme, layers(2, 1, 0.5)) == (
        GradientBucket(1, 2, MEGABYTE),
        GradientBucket(1, 2, MEGABYTE // 2),
        GradientBucket(0, 0, MEGABYTE),
        GradientBucket(0, 0, MEGABYTE),
    )


def test_one_rank_only_computes() -> None:
    for topology in ("ring", DIRECT, SERVERS):
        found = step(SyncScheme(topology=topology), network(1), 1, backward_s=1)
        assert (found.step_s, found.sent_bytes, found.exposed_s) == (1, 0, 0)


def test_what_cannot_be_is_refused_by_name() -> None:
    with pytest.raises(InvalidArgumentError, match="owners is 5"):
        step(SyncScheme(topology=SERVERS, owners=5), network(), 1)
    with pytest.raises(InvalidArgumentError, match=r"server_nodes is 'nod-3'.*did you mean node-3"):
        step(SyncScheme(topology=SERVERS, server_nodes=("node-1", "nod-3")), network(), 1)
    with pytest.raises(InvalidArgumentError, match="period is 0"):
        SyncScheme(period=0)
    with pytest.raises(InvalidArgumentError, match="rate of a link is 0"):
        AccessLink(0, 1)
    with pytest.raises(InvalidArgumentError, match="layers is 0"):
        even_layers(10, 1.0, 0)
    with pytest.raises(InvalidArgumentError, match="contention is 1"):
        SyncSetting(network(), layers(1), contention=1.0)


def test_a_job_s_default_is_torch_s_buckets() -> None:
    scheme = scheme_of(SyncMethod())
    assert (scheme.merge_bytes, scheme.first_merge_bytes, scheme.after_backward) == (25 * 2**20, 2**20, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bsp-ps", {"topology": "ps", "after_backward": True, "merge_bytes": 2**20}),
        ("topology=ps:2", {"topology": "ps", "owners": 2, "merge_bytes": 2**20}),
        ("mg-wfbp", {"merge_bytes": 2**20, "first_merge_bytes": 2**20}),
        ("bytescheduler-ps", {"cut_bytes": 2**19, "merge_bytes": 2**19, "waits_by_layer": True}),
        ("diloco", {"period": 32, "after_backward": True}),
        ("codec=powersgd:3,codec_from=512", {"codec": "powersgd", "low_rank": 3, "codec_from": 512}),
    ],
)
def test_what_a_job_can_have_is_known_to_the_model(text: str, expected: dict[str, object]) -> None:
    scheme = scheme_of(parse_sync("sync", text))
    assert {name: getattr(scheme, name) for name in expected} == expected


schemes = st.builds(
    SyncScheme,
    topology=st.sampled_from(["ring", DIRECT, SERVERS]),
    after_backward=st.booleans(),
    merge_bytes=st.integers(0, 4_000_000),
    codec=st.sampled_from(["none", "fp16", "powersgd"]),
    low_rank=st.integers(1, 8),
    codec_from=st.sampled_from([0, 3_000_000]),
    period=st.integers(1, 3),
) | st.builds(
    SyncScheme, topology=st.sampled_from(["ring", SERVERS]), cut_bytes=st.integers(100_000, 4_000_000)
)
sizes = st.lists(st.integers(0, 4), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(schemes, sizes, st.integers(1, 5), st.floats(0, 0.1), st.floats(0, 2))
def test_a_prediction_is_whole_and_no_better_than_its_bounds(
    scheme: SyncScheme, megabytes: list[int], ranks: int, delay_s: float, backward_s: float
) -> None:
    """The parts add up; no step is shorter than computing, nor than its bytes on the busiest link."""
    net = network(ranks, delay_s)
    found = predict(scheme, SyncSetting(net, layers(*megabytes, backward_s=backward_s)))
    parts = found.compute_s + found.exposed_s + found.compression_s
    assert found.step_s == pytest.approx(parts)
    assert found.step_s >= found.compute_s
    if scheme.period == 1:
        assert found.step_s >= found.sent_bytes * 8 / 8e6 - 1e-9


@settings(max_examples=40, deadline=None)
@given(sizes, st.integers(1, 5), st.integers(0, 4_000_000), st.floats(0, 2))
def test_a_slower_ring_makes_no_shorter_step(
    megabytes: list[int], ranks: int, merge_bytes: int, backward_s: float
) -> None:
    """Held for one queue in order; where orders change with the rates, scheduling has its anomalies."""
    shape, scheme = layers(*megabytes, backward_s=backward_s), SyncScheme(merge_bytes=merge_bytes)
    fast, slow = (
        predict(scheme, SyncSetting(SyncNetwork.uniform(ranks, rate, 0.01), shape)).step_s
        for rate in (8e6, 4e6)
    )
    assert slow >= fast - 1e-9
