"""What workers measured, as the model's network: figures by hand."""

import pytest

from peerloom.kit.sync_method import CUT, MERGED, SyncMethod
from peerloom.kit.sync_model.merging import merged_at_best
from peerloom.kit.sync_model.sync_choice import EXACT, RELAXED, candidates
from peerloom.services.trainer.generations.sync_measures import (
    codec_speeds,
    methods_for,
    network_of,
    predictions_of,
    setting_of,
)
from peerloom.v1.trainer_pb2 import MeasuredCodec, MeasuredLayer, MeasuredLink, WorkerMeasured


def link(rank: int, sent: float, received: float, delay_s: float) -> MeasuredLink:
    return MeasuredLink(rank=rank, sent_bits_per_s=sent, received_bits_per_s=received, delay_s=delay_s)


def layer(parameters: int, forward_s: float, backward_s: float) -> MeasuredLayer:
    return MeasuredLayer(parameters=parameters, forward_s=forward_s, backward_s=backward_s)


# Up and down, rank 0 has 60 and 40, rank 1 has 40 and 60, rank 2 has 10 and 20; the slower of two counts.
THREE = (
    WorkerMeasured(links=[link(1, 60.0, 40.0, 0.01), link(2, 20.0, 10.0, 0.05)]),
    WorkerMeasured(links=[link(2, 20.0, 10.0, 0.03)]),
    WorkerMeasured(),
)


def test_a_rank_s_own_link_is_as_fast_as_its_fastest_way() -> None:
    network = network_of(THREE)
    assert network is not None
    assert [(one.up_bits_per_s, one.down_bits_per_s) for one in network.links] == [
        (60.0, 40.0),
        (40.0, 60.0),
        (10.0, 20.0),
    ]
    assert network.delay_s == ((0.0, 0.01, 0.05), (0.01, 0.0, 0.03), (0.05, 0.03, 0.0))


def test_several_connections_at_once_may_bring_more_and_a_ring_or_doubling_has_one() -> None:
    """100, 50 and 15 came. Rank 2 sent at least the 50 that came to the slower of those that it answered."""
    measured = [WorkerMeasured(links=one.links) for one in THREE]
    measured[0].layers.append(layer(10, 1.0, 2.0))
    for one, came in zip(measured, (100.0, 50.0, 15.0), strict=True):
        one.together_bits_per_s = came
    setting = setting_of(measured)
    assert setting is not None
    for topology in ("direct", "ps", "hierarchy"):
        links = setting.network_of(topology).links
        assert [(one.up_bits_per_s, one.down_bits_per_s) for one in links] == [
            (60.0, 100.0),
            (40.0, 60.0),
            (50.0, 20.0),
        ]
    alone = network_of(THREE)
    assert alone is not None
    assert {setting.network_of(topology).links for topology in ("ring", "doubling")} == {alone.links}
    assert setting.network_of("doubling").overhead_s == setting.network.overhead_s


def test_what_a_message_costs_is_a_middling_one_and_not_the_library_s() -> None:
    """Of ways that say 1, 2 and 6 ms it is 2; a ring is the library's."""
    said = [link(1, 60.0, 40.0, 0.01), link(2, 20.0, 10.0, 0.05), link(2, 20.0, 10.0, 0.03)]
    for one, cost_s in zip(said, (0.001, 0.006, 0.002), strict=True):
        one.message_s = cost_s
    measured = (
        WorkerMeasured(links=said[:2], layers=[layer(10, 1.0, 2.0)]),
        WorkerMeasured(links=said[2:]),
        WorkerMeasured(),
    )
    setting = setting_of(measured)
    assert setting is not None
    assert setting.network.overhead_s == 0.002
    assert setting.network_of("ring").overhead_s == 0.0
    assert setting.network_of("ring").links == setting.network.links


def test_a_way_that_nobody_measured_has_a_middling_delay() -> None:
    network = network_of((WorkerMeasured(links=THREE[0].links), WorkerMeasured(), WorkerMeasured()))
    assert network is not None
    assert network.delay_s[1][2] == network.delay_s[2][1] == pytest.approx(0.03)


@pytest.mark.parametrize("links", [[], [link(0, 1.0, 1.0, 0.0)], [link(7, 1.0, 1.0, 0.0)]])
def test_without_a_way_to_each_rank_there_is_no_network(links: list[MeasuredLink]) -> None:
    assert network_of((WorkerMeasured(links=links), WorkerMeasured())) is None
    assert network_of((WorkerMeasured(links=links),)) is None
    assert network_of(()) is None


def test_a_codec_is_as_fast_as_on_the_slowest_node_and_known_where_all_know_it() -> None:
    quick = WorkerMeasured(
        codecs=[
            MeasuredCodec(codec="int8", encode_s=1.0, decode_s=4.0),
            MeasuredCodec(codec="int4", encode_s=1.0, decode_s=1.0),
        ]
    )
    slow = WorkerMeasured(codecs=[MeasuredCodec(codec="int8", encode_s=2.0, decode_s=3.0)])
    found = codec_speeds((quick, slow))
    assert {name: (one.encode_s, one.decode_s) for name, one in found.items()} == {"int8": (2.0, 4.0)}


def test_layers_are_rank_0_s_and_follow_what_computing_takes_by_now() -> None:
    first = WorkerMeasured(links=THREE[0].links, layers=[layer(10, 1.0, 2.0), layer(20, 0.0, 1.0)])
    setting = setting_of((first, *THREE[1:]))
    assert setting is not None
    assert [(one.parameters, one.forward_s, one.backward_s) for one in setting.layers] == [
        (10, 1.0, 2.0),
        (20, 0.0, 1.0),
    ]
    slower = setting_of((first, *THREE[1:]), compute_s=8.0)
    assert slower is not None
    assert [(one.forward_s, one.backward_s) for one in slower.layers] == [(2.0, 4.0), (0.0, 2.0)]
    assert setting_of(THREE) is None, "nobody has timed the layers"


def test_forward_passes_wait_by_layer_where_all_workers_can() -> None:
    for said in ((True, True, True), (True, False, True)):
        by_rank = [
            WorkerMeasured(links=one.links, waits_by_layer=can) for one, can in zip(THREE, said, strict=True)
        ]
        by_rank[0].layers.append(layer(1000, 0.1, 0.2))
        setting = setting_of(by_rank)
        assert setting is not None
        assert setting.waits_by_layer == all(said)


def test_a_running_job_changes_to_rounds_that_average_if_it_bears_them_and_to_known_codecs() -> None:
    known = [MeasuredCodec(codec="topk", encode_s=1e-9, decode_s=1e-9)]
    by_rank = [WorkerMeasured(links=one.links, codecs=known) for one in THREE]
    by_rank[0].layers.append(layer(1000, 0.1, 0.2))
    setting = setting_of(by_rank)
    assert setting is not None
    methods = methods_for(RELAXED, setting, bears_rounds=True)
    assert {one.codec for one in methods} == {"none", "topk"}
    assert {str(one.rounds) for one in methods if one.rounds} == {"period=16,outer=average"}
    assert len({str(one.rounds) for one in candidates(RELAXED) if one.rounds}) > 1, "some are left out"
    assert not any(one.rounds for one in methods_for(RELAXED, setting, bears_rounds=False))


def test_three_are_offered_the_node_that_is_nearest_to_all_as_their_only_server() -> None:
    """Ways of 10, 50 and 30 ms: from rank 1 the farther of two is nearest. All ranks may be servers, too."""
    first = WorkerMeasured(links=THREE[0].links, layers=[layer(10, 1.0, 2.0)])
    setting = setting_of((first, *THREE[1:]), ["ada", "bob", "cyd"])
    assert setting is not None
    by_servers = [one for one in methods_for(EXACT, setting, bears_rounds=False) if one.topology == "ps"]
    assert {one.server_nodes for one in by_servers} == {(), ("bob",)}


def test_a_large_model_is_not_cut_into_thousands_of_pieces() -> None:
    """40 MB: 306 pieces of 128 KiB, 77 of 512 KiB."""
    by_rank = [WorkerMeasured(links=one.links) for one in THREE]
    by_rank[0].layers.append(layer(10_000_000, 0.1, 0.2))
    setting = setting_of(by_rank)
    assert setting is not None
    assert {one.size_bytes for one in methods_for("exact", setting, True) if one.schedule == CUT} == {1 << 19}


def test_one_that_merges_is_compared_with_the_bytes_that_it_has() -> None:
    """1 KiB is none of the sizes that the model of a step looks at."""
    by_rank = [WorkerMeasured(links=one.links) for one in THREE]
    by_rank[0].layers.append(layer(1_000_000, 0.1, 0.2))
    setting = setting_of(by_rank)
    assert setting is not None
    offered = methods_for(EXACT, setting, bears_rounds=False)
    used, tried = SyncMethod(MERGED, size_bytes=1 << 10), SyncMethod(MERGED, size_bytes=1 << 11)
    found = predictions_of(offered, setting, used, {tried: 0.7}, None)
    assert {one.method for one in found.methods} == {*merged_at_best(offered, setting), used, tried}
    assert found.of_present is not None
