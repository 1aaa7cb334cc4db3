"""Which method a job takes: the fastest by prediction among those that lose no more than is allowed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from peerloom.errors import InvalidArgumentError, nearest
from peerloom.kit.codec_choices import POWER_SGD
from peerloom.kit.quantity_texts import shown_s
from peerloom.kit.sync_method import (
    BF16,
    BSP,
    CUT,
    DIRECT,
    DOUBLING,
    FP16,
    INT8,
    MERGED,
    MXFP4,
    NONE,
    ONE_BIT,
    PRESETS,
    RING,
    SERVERS,
    TOP_K,
    WFBP,
    SyncMethod,
)
from peerloom.kit.sync_model.merging import merged_at_best
from peerloom.kit.sync_model.prediction import StepPrediction, predict
from peerloom.kit.sync_model.scheme import scheme_of
from peerloom.kit.sync_model.sync_setting import SyncSetting

EXACT, NEAR, RELAXED = "exact", "near", "relaxed"
QUALITIES: Mapping[str, str] = {
    EXACT: "sums are exact but for the order of adding",
    NEAR: "16, 8 or 4 bits a value too: training loses next to nothing by them",
    RELAXED: "powersgd, 1bit, topk and local rounds too: more steps to the same loss",
}
MARGIN = 0.05  # of an incumbent's step: less isn't worth a change, nor surer than a prediction
RELAXED_RATIO, RELAXED_RANK = 0.01, 4  # of topk, and of powersgd
# Of merged the model of a step chooses the BYTES.
_SCHEDULES = ((WFBP, 0), (BSP, 0), (MERGED, PRESETS["mg-wfbp"].size_bytes), (CUT, 1 << 17), (CUT, 1 << 19))
# Delays and parts change what a round learns, nowhere predicted; parts would lose to each longer round.
_ROUNDS = tuple(
    one
    for one in PRESETS.values()
    if one.rounds is not None and not one.rounds.delay and one.rounds.partial is None
)
_NEAR_CODECS = (FP16, BF16, INT8, MXFP4)


@dataclass(frozen=True)
class RankedMethod:
    """A method and its prediction."""

    method: SyncMethod
    prediction: StepPrediction


@dataclass(frozen=True)
class SyncChoice:
    """The method to take, why, and the others that were allowed, the fastest first."""

    chosen: RankedMethod
    reason: str
    others: tuple[RankedMethod, ...]
    is_change: bool


def candidates(quality: str) -> tuple[SyncMethod, ...]:
    """Every method that exists and keeps the quality, the plainest first; of merged with one size each.

    Raises InvalidArgumentError for another quality.
    """
    if quality not in QUALITIES:
        near = nearest(quality, tuple(QUALITIES))
        hint = f", did you mean {near[0]}?" if near else ""
        raise InvalidArgumentError.of_field("quality", quality, f"one of {', '.join(QUALITIES)}{hint}")
    coded = [SyncMethod()]
    if quality in (NEAR, RELAXED):
        coded += [SyncMethod(codec=codec) for codec in _NEAR_CODECS]
    if quality == RELAXED:
        coded += [SyncMethod(codec=POWER_SGD, low_rank=RELAXED_RANK)]
        coded += [SyncMethod(codec=ONE_BIT), SyncMethod(codec=TOP_K, ratio=RELAXED_RATIO)]
    methods = [
        replace(one, schedule=schedule, topology=topology, size_bytes=size_bytes)
        for one in coded
        for topology in (RING, DIRECT, SERVERS, DOUBLING)
        for schedule, size_bytes in _SCHEDULES
    ]
    if quality == RELAXED:
        methods += [replace(one, topology=DIRECT, codec=codec) for one in _ROUNDS for codec in (NONE, MXFP4)]
    return tuple(one for one in methods if _can_be(one))


def _can_be(method: SyncMethod) -> bool:
    if method.topology == DOUBLING:
        return not method.is_decoded
    return method.topology != RING or (method.schedule != CUT and not method.is_decoded)


def ranked(methods: Sequence[SyncMethod], setting: SyncSetting) -> tuple[RankedMethod, ...]:
    """The fastest first; of equals the one that came first."""
    found = [RankedMethod(method, predict(scheme_of(method), setting)) for method in methods]
    return tuple(sorted(found, key=lambda one: one.prediction.step_s))


def choose_sync(
    setting: SyncSetting, quality: str = EXACT, incumbent: SyncMethod | None = None, margin: float = MARGIN
) -> SyncChoice:
    """The fastest method of this quality; an incumbent stays unless that saves over `margin` of its step.

    An incumbent that isn't of this quality goes. Raises InvalidArgumentError.
    """
    methods = merged_at_best(candidates(quality), setting)
    if incumbent is not None and incumbent not in methods and _is_allowed(incumbent, quality):
        methods = (*methods, incumbent)
    order = ranked(methods, setting)
    best = order[0]
    present = next((one for one in order if one.method == incumbent), None)
    chosen, reason = _decide(best, order[1:], present, margin)
    others = tuple(one for one in order if one is not chosen)
    return SyncChoice(chosen, reason, others, chosen.method != incumbent)


def _is_allowed(method: SyncMethod, quality: str) -> bool:
    allowed = candidates(quality)
    return method.codec in {one.codec for one in allowed} and (method.rounds is None or quality == RELAXED)


def _decide(
    best: RankedMethod, rest: Sequence[RankedMethod], present: RankedMethod | None, margin: float
) -> tuple[RankedMethod, str]:
    step_s = best.prediction.step_s
    told = f"a step of {shown_s(step_s)} is predicted for {best.method}"
    if present is None:
        second = f", {shown_s(rest[0].prediction.step_s)} for the next best, {rest[0].method}" if rest else ""
        return best, f"{told}{second}"
    present_s = present.prediction.step_s
    if present is best:
        return present, f"{told}, which is in use, and no less for any other"
    gain = 1 - step_s / present_s
    if gain <= margin:
        kept = f"a change would save {gain:.1%}, and is made for over {margin:.0%}"
        return present, f"{present.method} stays at {shown_s(present_s)}: {kept}"
    return (
        best,
        f"{told}, {gain:.0%} less than the {shown_s(present_s)} of {present.method}, which was in use",
    )
