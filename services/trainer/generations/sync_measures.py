"""What the workers of a generation measured, as the model of a step wants it: pure functions.

Two ranks at a time measure their way, with one connection, and then all ask all at once. A rank's own link
can't carry less than its fastest way does, nor than what came together: the most is its rate, by direction.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from statistics import median

from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.kit.sync_grammar import MAX_SYNC_CHARACTERS
from peerloom.kit.sync_method import CUT, DIRECT, DOUBLING, HIERARCHY, MERGED, NONE, RING, SERVERS, SyncMethod
from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
from peerloom.kit.sync_model.central_node import central_node
from peerloom.kit.sync_model.layer_times import LayerTimes
from peerloom.kit.sync_model.merging import merged_at_best
from peerloom.kit.sync_model.prediction import StepPrediction, predict
from peerloom.kit.sync_model.scheme import scheme_of
from peerloom.kit.sync_model.shown_rates import at_least, shown_rate
from peerloom.kit.sync_model.sync_choice import RankedMethod, candidates, ranked
from peerloom.kit.sync_model.sync_setting import CodecSpeed, SyncSetting
from peerloom.kit.topology_choices import MOST_NAMED_NODES
from peerloom.services.trainer.generations.expected_steps import Unseen
from peerloom.services.trainer.generations.measured_sites import named_sites, trunks_of
from peerloom.services.trainer.generations.sync_decisions import MeasuredStep
from peerloom.v1.trainer_pb2 import WorkerMeasured

# More pieces hide nothing more, and each costs the simulation's time.
MOST_PIECES = 256


def setting_of(
    by_rank: Sequence[WorkerMeasured], nodes: Sequence[str] = (), compute_s: float = 0.0
) -> SyncSetting | None:
    """What was measured, by rank, on these `nodes` if they are known; None while a part of it is missing.

    `compute_s` is what a step's computing takes by now; 0: what the layers took when they were timed.
    """
    layers = by_rank[0].layers if by_rank else ()
    alone = network_of(by_rank, nodes)
    if alone is None or not sum(layer.parameters for layer in layers):
        return None
    whole_s = fsum(layer.forward_s + layer.backward_s for layer in layers)
    scale = compute_s / whole_s if compute_s and whole_s else 1.0
    times = tuple(
        LayerTimes(f"layer {number}", layer.parameters, layer.forward_s * scale, layer.backward_s * scale)
        for number, layer in enumerate(layers)
    )
    network = replace(alone, links=_links_together(alone.links, by_rank))
    # These use one connection at a time, and of a ring the library's own, whose messages cost little.
    by_topology = {RING: replace(alone, overhead_s=0.0), DOUBLING: alone}
    waits_by_layer = all(one.waits_by_layer for one in by_rank)
    return SyncSetting(network, times, codec_speeds(by_rank), by_topology, waits_by_layer=waits_by_layer)


def network_of(by_rank: Sequence[WorkerMeasured], nodes: Sequence[str] = ()) -> SyncNetwork | None:
    """The ranks' links as single ways show them, and what those of a site share, where there are sites.

    Of a way that nobody measured the delay is a middling one, and so is what a message costs. None: a rank
    has no way.
    """
    ranks = len(by_rank)
    rates: dict[tuple[int, int], float] = {}
    delays: dict[tuple[int, int], float] = {}
    for rank, measured in enumerate(by_rank):
        for link in (link for link in measured.links if link.rank < ranks and link.rank != rank):
            rates[rank, link.rank], rates[link.rank, rank] = link.sent_bits_per_s, link.received_bits_per_s
            delays[rank, link.rank] = delays[link.rank, rank] = link.delay_s
    sent = [[rate for (sender, _), rate in rates.items() if sender == rank] for rank in range(ranks)]
    received = [[rate for (_, taker), rate in rates.items() if taker == rank] for rank in range(ranks)]
    if ranks < 2 or not all(sent):
        return None
    links = tuple(AccessLink(max(up), max(down)) for up, down in zip(sent, received, strict=True))
    usual_s = median(delays.values())
    rows = (tuple(0.0 if i == j else delays.get((i, j), usual_s) for j in range(ranks)) for i in range(ranks))
    message_s = median(link.message_s for measured in by_rank for link in measured.links)
    return SyncNetwork(links, tuple(rows), message_s, nodes=tuple(nodes), trunks=trunks_of(rates, ranks))


def _links_together(alone: Sequence[AccessLink], by_rank: Sequence[WorkerMeasured]) -> tuple[AccessLink, ...]:
    """The links while several connections use them.

    One brings at least what came while all asked all, and sends at least what each of all others got.
    """
    got = [measured.together_bits_per_s for measured in by_rank]
    sent = [min(got[:rank] + got[rank + 1 :]) for rank in range(len(got))]
    return tuple(
        AccessLink(max(link.up_bits_per_s, up), max(link.down_bits_per_s, down))
        for link, up, down in zip(alone, sent, got, strict=True)
    )


@dataclass(frozen=True)
class Predictions:
    """Of all methods, the fastest first, and of the one in use what was expected before its own steps.

    `by` are the steps of the one in use by which they were made, None where none were measured yet.
    """

    methods: Sequence[RankedMethod] = ()
    of_present: StepPrediction | None = None
    by: MeasuredStep | None = None


def predictions_of(
    methods: Sequence[SyncMethod],
    setting: SyncSetting,
    in_use: SyncMethod,
    tried: Mapping[SyncMethod, float],
    measured: MeasuredStep | None,
    roughly: Collection[SyncMethod] = (),
) -> Predictions:
    """What steps are expected to take, where `tried` ones took so many seconds, and those in use `measured`.

    Of the tried ones those that `roughly` names were left after their first steps. What is merged are the
    BYTES that are the best by now; a used method that merges others is compared, too. Links carry at least
    what any of these shows, of methods that send values as they are in each step.

    Raises InvalidArgumentError.
    """
    shown = {one: step_s for one, step_s in tried.items() if _shows_links(one)}
    before = max((shown_rate(scheme_of(one), setting, step_s) for one, step_s in shown.items()), default=0.0)
    now = before
    if measured is not None and _shows_links(in_use):
        now = max(before, shown_rate(scheme_of(in_use), setting, measured.step_s))
    by_now = at_least(setting, now)
    merged = (one for one in (in_use, *tried) if one.schedule == MERGED)
    methods = tuple(dict.fromkeys((*merged_at_best(methods, by_now), *merged)))
    used = [one for one in (*tried, in_use) if one in methods]
    predictions = {one: predict(scheme_of(one), at_least(setting, before)) for one in used}
    times = Unseen(tried, predictions, roughly).of(in_use, in_use)
    present = _longer(predictions[in_use], times) if in_use in predictions else None
    return Predictions(ranked(methods, by_now), present, measured)


def _longer(one: StepPrediction, times: float) -> StepPrediction:
    """What isn't seen is waited for."""
    return replace(one, step_s=one.step_s * times, exposed_s=one.exposed_s + one.step_s * (times - 1))


def _shows_links(method: SyncMethod) -> bool:
    """A codec's own time, and a round's, hide what links take."""
    return method.codec == NONE and method.rounds is None


def codec_speeds(by_rank: Sequence[WorkerMeasured]) -> Mapping[str, CodecSpeed]:
    """The codecs that all have measured, each as fast as on the slowest node: all wait for that one."""
    found: dict[str, list[CodecSpeed]] = {}
    for measured in by_rank:
        for codec in measured.codecs:
            found.setdefault(codec.codec, []).append(CodecSpeed(codec.encode_s, codec.decode_s))
    return {
        name: CodecSpeed(max(one.encode_s for one in speeds), max(one.decode_s for one in speeds))
        for name, speeds in found.items()
        if len(speeds) == len(by_rank)
    }


def methods_for(quality: str, setting: SyncSetting, bears_rounds: bool) -> tuple[SyncMethod, ...]:
    """What a running job may change to: each codec's speed is known, and rounds where the job bears them.

    Those that average: with an outer momentum a learning rate that was right may be too large. Where there
    are sites sums are offered by these, too, and each way by servers also with the one node nearest to all.

    Raises InvalidArgumentError for a quality that isn't there.
    """
    size_bytes = VALUE_BYTES * sum(layer.parameters for layer in setting.layers)
    known = candidates(quality)
    sites = named_sites(setting.network.trunks, setting.network.node_names)
    if sites is not None and sum(map(len, sites)) <= MOST_NAMED_NODES:
        by_site = (replace(one, topology=HIERARCHY, sites=sites) for one in known if one.topology == DIRECT)
        known = (*known, *(one for one in by_site if len(str(one)) <= MAX_SYNC_CHARACTERS))
    centre = central_node(setting.network, size_bytes)
    if centre is not None:
        known = (*known, *(replace(one, server_nodes=(centre,)) for one in known if one.topology == SERVERS))
    return tuple(
        one
        for one in known
        if (one.rounds is None or (bears_rounds and one.rounds.averages))
        and (one.codec == NONE or one.codec in setting.codec_speeds)
        and not (one.schedule == CUT and size_bytes > MOST_PIECES * one.size_bytes)
    )
