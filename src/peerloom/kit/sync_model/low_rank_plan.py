"""What becomes of gradients by powersgd: first factors bucket by bucket, then all second ones together.

How a layer's parameters lie in matrices isn't known here. Each counts as one square matrix, whose factors are
the shortest that there are.
"""

from dataclasses import replace

from peerloom.kit.codec_choices import POWER_SGD
from peerloom.kit.sync_model.buckets import GradientBucket, buckets_of
from peerloom.kit.sync_model.message_rounds import MessageRound, SumTopology
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.step_simulation import BucketPlan, CodecWork
from peerloom.kit.sync_model.sync_setting import SyncSetting


def low_rank_plans(scheme: SyncScheme, setting: SyncSetting, topology: SumTopology) -> tuple[BucketPlan, ...]:
    """The buckets with their rounds and work; the last one has what is done for all of them at the end."""
    # A matrix isn't cut; a bucket ends behind the one that fills it.
    whole = replace(scheme, cut_bytes=0, merge_bytes=scheme.merge_bytes or scheme.cut_bytes)
    buckets = buckets_of(whole, setting.layers)
    speed = setting.codec_speeds[POWER_SGD]
    plans, in_all, second_values = list[BucketPlan](), 0, 0
    for bucket in buckets:
        factored, factor_values = _factored(scheme, setting, bucket)
        in_all, second_values = in_all + factored, second_values + factor_values
        rounds = topology.rounds(bucket.values - factored + factor_values)
        stages: list[MessageRound | CodecWork] = [*rounds]
        if rounds and factored:
            stages = [CodecWork("factor", factored * scheme.low_rank * speed.encode_s / 2), *rounds]
        if rounds and bucket is buckets[-1] and second_values:
            stages += [
                CodecWork("project", in_all * scheme.low_rank * speed.encode_s / 2),
                *topology.rounds(second_values),
                CodecWork("multiply", in_all * scheme.low_rank * speed.decode_s),
            ]
        plans.append(BucketPlan(bucket, tuple(stages), 0 if scheme.after_backward else len(stages)))
    return tuple(plans)


def _factored(scheme: SyncScheme, setting: SyncSetting, bucket: GradientBucket) -> tuple[int, int]:
    """Of a bucket, how many values are factored, and how many each of both factors has together."""
    sizes = [layer.parameters for layer in setting.layers[bucket.first_layer : bucket.last_layer + 1]]
    factors = [(size, scheme.factor_values(size)) for size in sizes]
    return sum(size for size, values in factors if values), sum(values for _, values in factors)
