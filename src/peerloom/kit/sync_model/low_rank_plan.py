"""What becomes of gradients by powersgd: first factors bucket by bucket, then all second ones together.

How a layer's parameters lie in matrices isn't known here. Each counts as one square matrix, whose factors are
the shortest that there are.
"""

from dataclasses import replace

from peerloom.kit.codec_choices import POWER_SGD
from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.kit.sync_model.bucket_topologies import topologies_of
from peerloom.kit.sync_model.buckets import GradientBucket, buckets_of
from peerloom.kit.sync_model.message_rounds import MessageRound, SumTopology
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.step_simulation import BucketPlan, CodecWork
from peerloom.kit.sync_model.sync_setting import SyncSetting


def low_rank_plans(
    scheme: SyncScheme, setting: SyncSetting, topology: SumTopology | None
) -> tuple[tuple[BucketPlan, ...], tuple[str, ...]]:
    """The buckets with their rounds and work, and the links that they use.

    If `topology` is given it is that of all. The last bucket has what is done for all of them at the end.
    """
    # A matrix isn't cut; a bucket ends behind the one that fills it.
    whole = replace(scheme, cut_bytes=0, merge_bytes=scheme.merge_bytes or scheme.cut_bytes)
    buckets = buckets_of(whole, setting.layers)
    factored = [_factored(scheme, setting, one) for one in buckets]
    in_all, second_values = (sum(each) for each in zip(*factored, strict=True)) if factored else (0, 0)
    firsts = [one.values - taken + values for one, (taken, values) in zip(buckets, factored, strict=True)]
    sizes = [VALUE_BYTES * values for values in (*firsts, second_values)]
    network = setting.network_of(scheme.topology)
    ways = topologies_of(scheme, network, sizes, topology)
    speed = setting.codec_speeds[POWER_SGD]
    plans = list[BucketPlan]()
    for bucket, way, values, (taken, _) in zip(buckets, ways[:-1], firsts, factored, strict=True):
        rounds = way.rounds(values)
        stages: list[MessageRound | CodecWork] = [*rounds]
        if rounds and taken:
            stages = [CodecWork("factor", taken * scheme.low_rank * speed.encode_s / 2), *rounds]
        if rounds and bucket is buckets[-1] and second_values:
            stages += [
                CodecWork("project", in_all * scheme.low_rank * speed.encode_s / 2),
                *ways[-1].rounds(second_values),
                CodecWork("multiply", in_all * scheme.low_rank * speed.decode_s),
            ]
        plans.append(BucketPlan(bucket, tuple(stages), 0 if scheme.after_backward else len(stages)))
    return tuple(plans), ways[-1].links


def _factored(scheme: SyncScheme, setting: SyncSetting, bucket: GradientBucket) -> tuple[int, int]:
    """Of a bucket, how many values are factored, and how many each of both factors has together."""
    sizes = [layer.parameters for layer in setting.layers[bucket.first_layer : bucket.last_layer + 1]]
    factors = [(size, scheme.factor_values(size)) for size in sizes]
    return sum(size for size, values in factors if values), sum(values for _, values in factors)
