"""Small buckets by servers: each has one owner, by turns, and a step takes what that one's links do."""

from dataclasses import replace

import pytest
from predicted_settings import BSP, layers, network, step

from peerloom.kit.sync_method import DIRECT, FP16, SERVERS, SPREAD_BYTES
from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
from peerloom.kit.sync_model.bucket_topologies import topologies_of
from peerloom.kit.sync_model.prediction import predict
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.sync_setting import CodecSpeed, SyncSetting
from peerloom.kit.sync_servers import ServerLoads

BY_ALL = replace(BSP, topology=SERVERS)
BY_LAYER = SyncScheme(topology=SERVERS, after_backward=True)


def test_turns_go_by_bytes_and_large_messages_are_everybody_s() -> None:
    """10 bytes to rank 4, then 4 and 5 to rank 7, which has 9, so 3 more; then rank 4 has fewer."""
    loads = ServerLoads((4, 7))
    found = [loads.owners_of_next(size) for size in (10, 4, SPREAD_BYTES, 5, 3, SPREAD_BYTES - 1)]
    assert found == [(4,), (7,), (4, 7), (7,), (7,), (4,)]


def test_a_small_bucket_goes_through_one_rank_s_links() -> None:
    """0.1 MB from each of three others, one after the other on rank 0's link, and back."""
    found = step(BY_ALL, network(delay_s=0.01), 0.1)
    assert found.step_s == pytest.approx(2 * (0.3 + 0.01))
    assert found.sent_bytes == 3e5
    assert step(BY_ALL, network(delay_s=0.01), 0.4).step_s == pytest.approx(2 * (0.3 + 0.01)), "0.1 MB each"


def test_as_many_small_buckets_as_servers_load_all_links_alike() -> None:
    """0.1 MB a layer: rank 0 sums one, rank 1 the next; each sends three and gets three, as with parts."""
    by_turns = step(BY_LAYER, network(delay_s=0.01), 0.1, 0.1, 0.1, 0.1)
    in_parts = step(replace(BY_LAYER, topology=DIRECT), network(delay_s=0.01), 0.1, 0.1, 0.1, 0.1)
    assert by_turns.step_s == pytest.approx(0.6 + 0.02)
    assert by_turns.sent_bytes == in_parts.sent_bytes == 6e5


def test_one_bucket_more_is_the_first_server_s_again() -> None:
    """Rank 0 has got the fifth after 0.6 s, with a trip 0.61; its link sends the first one's sum until then.

    The fifth one's takes it 0.3 s more, and a trip.
    """
    found = step(BY_LAYER, network(delay_s=0.01), 0.1, 0.1, 0.1, 0.1, 0.1)
    assert found.sent_bytes == 3e5 + 6e5
    assert found.step_s == pytest.approx(0.61 + 0.3 + 0.01)


def test_over_many_servers_turns_count_as_parts() -> None:
    """Up to 32 ranks that own a bucket alone are simulated one by one, and all that are alike as one."""
    few, many, some = (
        topologies_of(BY_LAYER, network(ranks), [1000] * buckets)[0].links
        for ranks, buckets in ((32, 40), (33, 40), (40, 3))
    )
    assert (len(few), many, len(some)) == (2 * 32, ("sends", "receives"), 2 * 4)


@pytest.mark.parametrize(("order", "farthest_s"), [((0.0, 0.01, 0.05), 0.05), ((0.05, 0.0, 0.01), 0.06)])
def test_it_is_as_far_as_its_one_server(order: tuple[float, ...], farthest_s: float) -> None:
    """In the middle, or behind a long way: the first rank has it."""
    net = SyncNetwork.of_access(network(3).links, order)
    assert step(BY_ALL, net, 0.0001).step_s == pytest.approx(2 * farthest_s, abs=0.001)


def test_a_small_bucket_by_named_servers_is_at_the_first_of_them() -> None:
    """node-3 alone gets three times 0.1 MB at 2 Mbit/s: 1.2 s there, and back."""
    slow = AccessLink(2e6, 2e6)
    net = replace(network(), links=(*network(2).links, slow, network(1).links[0]))
    named = replace(BY_ALL, server_nodes=("node-3", "node-4"))
    assert step(named, net, 0.1).step_s == pytest.approx(2.4)
    assert step(replace(named, server_nodes=("node-4",)), net, 0.1).step_s == pytest.approx(0.8), (
        "node-3 sends"
    )


def test_the_codec_s_work_on_a_small_bucket_is_one_server_s() -> None:
    """A second to encode a megabyte: 0.1 s at each, and as much for the sum, which has one owner."""
    setting = SyncSetting(network(), layers(0.1), {FP16: CodecSpeed(1 / 250_000, 0.0)})
    assert predict(replace(BY_ALL, codec=FP16), setting).compression_s == pytest.approx(0.2)


def test_second_factors_have_a_server_of_their_own() -> None:
    """Two factors of a matrix of 500 x 500 values, of rank 1: 2 kB each, at ranks 0 and 1.

    Each server gets two others' 2 kB, 4 ms, and gives as much.
    """
    setting = SyncSetting(network(3, delay_s=0.01), layers(1), {"powersgd": CodecSpeed(0.0, 0.0)})
    found = predict(replace(BY_ALL, codec="powersgd", low_rank=1), setting)
    assert found.step_s == pytest.approx(2 * 2 * (0.004 + 0.01))
    assert found.sent_bytes == 2000 + 2 * 2000, "its own part to the other one, and the sum to both"
