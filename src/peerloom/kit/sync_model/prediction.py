"""What a step takes by a scheme: its parts, its bytes, and what happens when."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum

from peerloom.errors import InvalidArgumentError, nearest
from peerloom.kit.averaged_parts import AveragedParts
from peerloom.kit.codec_choices import POWER_SGD
from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.kit.sync_method import DIRECT, NONE
from peerloom.kit.sync_model.bucket_stages import bucket_plan
from peerloom.kit.sync_model.bucket_topologies import topologies_of
from peerloom.kit.sync_model.buckets import buckets_of, divided_by_size
from peerloom.kit.sync_model.event_queue import Interval
from peerloom.kit.sync_model.group_rounds import GroupTopology
from peerloom.kit.sync_model.low_rank_plan import low_rank_plans
from peerloom.kit.sync_model.message_rounds import MessageRound, SumTopology
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.step_simulation import BucketPlan, CodecWork, StepPlan, simulate
from peerloom.kit.sync_model.sync_setting import SyncSetting

# The next step's forward pass runs into a step's last messages, so a step is from one backward pass's end to
# the next one's. When a backward pass begins, each layer has waited for its sums, and the links are idle:
# so the second step is as all later ones.
_STEPS_BY_LAYER = 2
_ALL_BYTES = 1 << 62  # all layers' values leave together


@dataclass(frozen=True)
class StepPrediction:
    """A step's seconds, the sum of its three parts; all that a period takes is spread over its steps.

    So are averages within groups or of parts, none of which computing hides.

    `sent_bytes` leave the busiest rank (or server) a step. `timeline` is of one exchange's step, from its
    beginning.
    """

    step_s: float
    compute_s: float
    exposed_s: float
    compression_s: float
    sent_bytes: float
    timeline: tuple[Interval, ...]


def predict(scheme: SyncScheme, setting: SyncSetting, topology: SumTopology | None = None) -> StepPrediction:
    """What a step takes; `topology` is used in place of the scheme's.

    Raises InvalidArgumentError for more owners than ranks, owners on no node, or a codec without a speed.
    """
    _check(scheme, setting)
    each = scheme if scheme.period == 1 else replace(scheme, after_backward=True, cut_bytes=0)
    plan = _plan(each, setting, topology)
    steps = simulate(plan, _STEPS_BY_LAYER if plan.waits_by_layer else 1, setting.contention)
    begin_s, end_s = steps.backward_end_s[-2:] if plan.waits_by_layer else (0.0, steps.end_s[0])
    stages = [stage for bucket in plan.buckets for stage in bucket.stages]
    codec_s = fsum(stage.seconds for stage in stages if isinstance(stage, CodecWork))
    compute_s, period = setting.compute_s, scheme.period
    within = _groups(scheme, setting) if scheme.partial is None else _parts(scheme, scheme.partial, setting)
    grouped_s, grouped_bytes = within
    hidden_s = period * compute_s + grouped_s if scheme.is_delayed else 0.0
    added_s = max(0.0, end_s - begin_s - compute_s - hidden_s)
    sent_bytes = _busiest_bytes([one for one in stages if isinstance(one, MessageRound)])
    return StepPrediction(
        step_s=compute_s + (added_s + grouped_s) / period,
        compute_s=compute_s,
        exposed_s=(max(0.0, added_s - codec_s) + grouped_s) / period,
        compression_s=min(codec_s, added_s) / period,
        sent_bytes=(sent_bytes + grouped_bytes) / period,
        timeline=_window(steps.log, begin_s, end_s),
    )


def _groups(scheme: SyncScheme, setting: SyncSetting) -> tuple[float, float]:
    """Seconds that groups average in a period, and the bytes that leave a rank for it.

    Both as in the mean of the occasions that differ.
    """
    groups, network = scheme.groups, setting.network_of(scheme.topology)
    if groups is None:
        return 0.0, 0.0
    plain = SyncScheme(scheme.topology, after_backward=True, merge_bytes=_ALL_BYTES)
    turns = range(groups.turns(network.ranks))
    divided = (
        groups.divide(range(network.ranks), network.node_names, scheme.sites, occasion) for occasion in turns
    )
    each = [predict(plain, setting, GroupTopology(network, one)) for one in divided]
    times = groups.occasions(scheme.period) / len(turns)
    return times * fsum(one.exposed_s for one in each), times * fsum(one.sent_bytes for one in each)


def _parts(scheme: SyncScheme, partial: AveragedParts, setting: SyncSetting) -> tuple[float, float]:
    """Seconds that averaging parts adds to a period, and the bytes that leave a rank for it."""
    layers = tuple(replace(one, parameters=-(-one.parameters // partial.parts)) for one in setting.layers)
    direct = SyncScheme(
        DIRECT, after_backward=True, merge_bytes=_ALL_BYTES, codec=scheme.codec, ratio=scheme.ratio
    )
    each, times = predict(direct, replace(setting, layers=layers)), partial.occasions(scheme.period)
    waited_s = max(0.0, each.exposed_s - partial.late * setting.compute_s)
    return times * (waited_s + each.compression_s), times * each.sent_bytes


def _check(scheme: SyncScheme, setting: SyncSetting) -> None:
    network = setting.network_of(scheme.topology)
    if scheme.owners > (len(network.servers) or network.ranks):
        raise InvalidArgumentError.of_field("owners", scheme.owners, f"at most the {network.ranks} ranks")
    for node in set(scheme.server_nodes).difference(network.node_names):
        near = nearest(node, network.node_names)
        hint = f", did you mean {near[0]}?" if near else ""
        limit = f"a node of the {network.ranks} workers, {network.node_names[0]} and so on{hint}"
        raise InvalidArgumentError.of_field("server_nodes", node, limit)
    if scheme.codec not in (*setting.codec_speeds, NONE):
        raise InvalidArgumentError.of_field("codec", scheme.codec, "one whose speed is known")


def _busiest_bytes(rounds: Sequence[MessageRound]) -> int:
    by_role = zip(*(one.sent_bytes for one in rounds), strict=True)
    return max((sum(of_rounds) for of_rounds in by_role), default=0)


def _plan(scheme: SyncScheme, setting: SyncSetting, topology: SumTopology | None) -> StepPlan:
    plans, links = _bucket_plans(scheme, setting, topology)
    waits_by_layer = scheme.waits_by_layer and setting.waits_by_layer
    threads = setting.network_of(scheme.topology).library_threads
    return StepPlan(setting.layers, plans, links, waits_by_layer, threads)


def _bucket_plans(
    scheme: SyncScheme, setting: SyncSetting, topology: SumTopology | None
) -> tuple[tuple[BucketPlan, ...], tuple[str, ...]]:
    """The buckets with what becomes of them, and the links that they use."""
    if scheme.codec == POWER_SGD:
        return low_rank_plans(scheme, setting, topology)
    buckets = buckets_of(scheme, setting.layers)
    if scheme.codec_from:
        buckets = divided_by_size(scheme, setting.layers, buckets)
    sizes, network = [VALUE_BYTES * one.values for one in buckets], setting.network_of(scheme.topology)
    ways = topologies_of(scheme, network, sizes, topology)
    plain = scheme.without_codec()
    exact = topologies_of(plain, network, sizes) if scheme.codec_from else ways
    plans = (
        bucket_plan(plain, setting, small, one) if one.is_small else bucket_plan(scheme, setting, way, one)
        for one, way, small in zip(buckets, ways, exact, strict=True)
    )
    return tuple(plans), ways[0].links if buckets else ()


def _window(log: Sequence[Interval], begin_s: float, end_s: float) -> tuple[Interval, ...]:
    """What happened within a step, in seconds since it began."""
    return tuple(
        Interval(one.resource, one.what, max(0.0, one.start_s - begin_s), min(end_s, one.end_s) - begin_s)
        for one in sorted(log, key=lambda one: (one.start_s, one.resource))
        if one.end_s > begin_s and one.start_s < end_s
    )
