"""What becomes of a bucket: rounds of messages, and the work of a codec around them."""

from peerloom.kit.sync_method import DOUBLING, HIERARCHY, RING
from peerloom.kit.sync_model.buckets import GradientBucket
from peerloom.kit.sync_model.message_rounds import MessageRound, SumTopology
from peerloom.kit.sync_model.owner_rounds import OwnersTopology
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.step_simulation import BucketPlan, CodecWork
from peerloom.kit.sync_model.sync_setting import CodecSpeed, SyncSetting
from peerloom.kit.sync_sites import leaders_of


def bucket_plan(
    scheme: SyncScheme, setting: SyncSetting, topology: SumTopology, bucket: GradientBucket
) -> BucketPlan:
    """A bucket's rounds, with the codec's work before, between and after them."""
    rounds = topology.rounds(bucket.values)
    encode, add, decode = _codec_work(scheme, setting, topology, bucket.values)
    between: list[CodecWork | None] = [encode, *[add] * (len(rounds) - 1), decode]
    if scheme.topology == HIERARCHY:  # values go up as they are, and the leaders' sums down
        between = [None, encode, add, None, decode]
    stages: list[MessageRound | CodecWork] = []
    if rounds:
        for work, one in zip(between, (*rounds, None), strict=True):
            stages += [work] if work is not None and work.seconds else []
            stages += [one] if one is not None else []
    return BucketPlan(bucket, tuple(stages), 0 if scheme.after_backward else len(stages))


def _codec_work(
    scheme: SyncScheme, setting: SyncSetting, topology: SumTopology, values: int
) -> tuple[CodecWork, CodecWork, CodecWork]:
    """Encoding a bucket, adding up between two rounds, and decoding the sum; 0 s where it isn't encoded."""
    if scheme.topology == DOUBLING:
        return _doubling_work(scheme, setting, values)
    network = setting.network_of(scheme.topology)
    ranks = network.ranks
    if scheme.topology == HIERARCHY:
        ranks = len(set(leaders_of(scheme.sites, network.node_names)))
    owners = topology.owners if isinstance(topology, OwnersTopology) else ranks
    part = -(-values // owners)
    speed = setting.codec_speeds[scheme.codec] if scheme.encodes(part) else CodecSpeed(0.0, 0.0)
    added_s = 0.0 if scheme.topology == RING else ranks * part * speed.decode_s + part * speed.encode_s
    return (
        CodecWork("encode", values * speed.encode_s),
        CodecWork("add", added_s),
        CodecWork("decode", values * speed.decode_s),
    )


def _doubling_work(
    scheme: SyncScheme, setting: SyncSetting, values: int
) -> tuple[CodecWork, CodecWork, CodecWork]:
    """After each swap both sums of a pair are decoded, and theirs is encoded."""
    speed = setting.codec_speeds[scheme.codec] if scheme.encodes(values) else CodecSpeed(0.0, 0.0)
    add_s = values * (2 * speed.decode_s + speed.encode_s)
    return (
        CodecWork("encode", values * speed.encode_s),
        CodecWork("add", add_s),
        CodecWork("decode", add_s + values * speed.decode_s),
    )
