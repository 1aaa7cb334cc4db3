"""How many bytes of gradients wait for one another, by the model of a step."""

from dataclasses import replace

import pytest

from peerloom.kit.sync_method import DIRECT, DOUBLING, INT8, MERGED, RING, SERVERS, SyncMethod
from peerloom.kit.sync_model.access_links import SyncNetwork
from peerloom.kit.sync_model.layer_times import LayerTimes
from peerloom.kit.sync_model.merging import MERGE_BYTES, merged_at_best
from peerloom.kit.sync_model.prediction import predict
from peerloom.kit.sync_model.scheme import scheme_of
from peerloom.kit.sync_model.sync_choice import EXACT, NEAR, candidates
from peerloom.kit.sync_model.sync_setting import SyncSetting

DIRECTLY = SyncMethod(MERGED, DIRECT, size_bytes=1 << 20)
EIGHTH = 1 << 14  # values of a layer: 64 KiB


def setting(
    delay_s: float, bits_per_s: float = 1e9, layers: int = 8, backward_s: float = 0.01
) -> SyncSetting:
    network = SyncNetwork.uniform(2, bits_per_s, delay_s)
    each = LayerTimes("layer", EIGHTH, 0.0, backward_s)
    return SyncSetting(network, (each,) * layers)


def size_at(where: SyncSetting, method: SyncMethod = DIRECTLY) -> int:
    [found] = merged_at_best([method], where)
    return found.size_bytes


def test_without_a_start_up_layers_go_as_soon_as_they_can() -> None:
    """10 ms of backward pass hide what a layer's 64 KiB take, 0.5 ms: to wait for a second saves nothing."""
    assert size_at(setting(delay_s=0.0)) == 1 << 16


def test_slow_links_merge_nothing_either() -> None:
    """A layer takes 52 ms, five times its backward pass: what waits is idle time on the line."""
    assert size_at(setting(delay_s=0.0, bits_per_s=1e7)) == 1 << 16


@pytest.mark.parametrize("topology", [RING, DIRECT, SERVERS, DOUBLING])
@pytest.mark.parametrize("delay_s", [0.0, 1e-4, 1e-3, 1e-2])
def test_no_other_size_is_predicted_to_be_faster(topology: str, delay_s: float) -> None:
    where = setting(delay_s, bits_per_s=1e8, layers=64, backward_s=1e-3)
    method = replace(DIRECTLY, topology=topology)
    found = predict(scheme_of(replace(method, size_bytes=size_at(where, method))), where).step_s
    for size_bytes in MERGE_BYTES:
        assert found <= predict(scheme_of(replace(method, size_bytes=size_bytes)), where).step_s


def test_of_equals_the_fewest_messages_are_chosen() -> None:
    """Without a backward pass all gradients are there at once; 512 KiB is the most that merges some."""
    where = setting(delay_s=0.0, layers=16, backward_s=0.0)
    by_size = {each: scheme_of(replace(DIRECTLY, size_bytes=each)) for each in MERGE_BYTES}
    times = {each: predict(scheme, where).step_s for each, scheme in by_size.items()}
    best = min(times.values())
    assert size_at(where) == max(each for each, step_s in times.items() if step_s == best and each < 1 << 20)


def test_a_codec_merges_as_much_and_nothing_else_is_changed() -> None:
    where = setting(delay_s=0.0)
    others = [SyncMethod(), replace(DIRECTLY, codec=INT8)]
    assert merged_at_best(others, where) == (SyncMethod(), replace(DIRECTLY, codec=INT8, size_bytes=1 << 16))


def test_a_small_model_has_nothing_to_merge() -> None:
    tiny = setting(delay_s=0.01, layers=1)
    assert merged_at_best([SyncMethod(), DIRECTLY], tiny) == (SyncMethod(),)


@pytest.mark.parametrize("quality", [EXACT, NEAR])
def test_each_way_and_codec_is_offered_with_one_size(quality: str) -> None:
    found = [one for one in merged_at_best(candidates(quality), setting(1e-3)) if one.schedule == MERGED]
    kinds = {(one.topology, one.codec) for one in found}
    assert len(kinds) == len(found) > 3
