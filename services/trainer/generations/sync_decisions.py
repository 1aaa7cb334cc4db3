"""Whether a running job takes another way to synchronise: pure functions of predictions and measurements.

A prediction proposes, and the measured steps decide: of a method that these workers have used, the time that
was measured counts, and of any other the predicted one, made longer where the model was too hopeful about a
method of its kind, or else as it was about those that were used. So a change that doesn't keep its promise is
taken back, others of its kind aren't tried after it, and noise below the margin moves nothing back and forth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean

from peerloom.kit.codec_choices import POWER_SGD
from peerloom.kit.sync_method import BF16, FP16, INT4, INT8, NONE, ONE_BIT, TOP_K, SyncMethod
from peerloom.kit.sync_model.prediction import StepPrediction
from peerloom.kit.sync_model.sync_choice import MARGIN, RankedMethod, shown_time
from peerloom.services.trainer.workers.state import Finished, Lost, WorkerState

STEPS_MEASURED, MEASURED_S = 8, 0.5  # fewer and shorter ones say little of a method
LONG_STEPS_MEASURED, LONG_MEASURED_S = 3, 2.0  # long ones vary less, and each costs as much as a change
ROUGH_MARGIN = 0.5  # before so many: noise is less, and each step by a way so slow is lost
CHANGE_COST_S = 1.0  # to meet anew beside the training, and for DDP to cut its buckets again
FIRST_INTERVAL_S, CHANGE_INTERVAL_S = 10.0, 30.0  # what hasn't been tried is tried early in a job
Kind = tuple[str, bool, str, int]  # topology, whether it names its servers, codec, batches
_LOSES = (NONE, BF16, FP16, INT8, INT4, POWER_SGD, ONE_BIT, TOP_K)  # more and more


@dataclass(frozen=True)
class MeasuredStep:
    """Medians over a method's last steps, in seconds; rough ones are of few."""

    step_s: float
    compute_s: float
    communication_s: float
    is_rough: bool = False


@dataclass(frozen=True)
class SyncSituation:
    """What is known when it is decided.

    `predicted` has all methods that the quality allows, of equals the plainest first, and `tried` what these
    workers' steps took with others than the one in use. `measured` is None after too few steps;
    `since_change_s` None where there was no change, of which the job has made so many `changes` by now.
    """

    in_use: SyncMethod
    predicted: Sequence[RankedMethod]
    measured: MeasuredStep | None
    steps_left: int
    tried: Mapping[SyncMethod, float] = field(default_factory=dict)
    since_change_s: float | None = None
    changes: int = 0


@dataclass(frozen=True)
class SyncVerdict:
    """The method to use from now on, why, and what else there is.

    `runner_up` is the best of all others, with the seconds that its step is expected to take.
    """

    method: SyncMethod
    reason: str
    is_change: bool = False
    runner_up: tuple[SyncMethod, float] | None = None


def decide_sync(now: SyncSituation) -> SyncVerdict:
    """What to use, and why."""
    predictions = {one.method: one.prediction for one in now.predicted}
    if not predictions:
        return SyncVerdict(now.in_use, "the links and layers are not measured yet")
    if now.measured is None:
        return SyncVerdict(now.in_use, "too few steps are measured yet")
    expected = _expected(now, predictions, now.measured.step_s)
    if not expected:
        return SyncVerdict(now.in_use, "there is no other of this quality")
    best = _best(expected, now.measured.step_s)
    best_s = expected[best]
    why_not = _why_not(now, now.measured, best, best_s)
    if why_not:
        return SyncVerdict(now.in_use, why_not, False, (best, best_s))
    how = "was measured before" if best in now.tried else "is predicted"
    less = f"{1 - best_s / now.measured.step_s:.0%} less than the {shown_time(now.measured.step_s)} measured"
    reason = f"a step of {shown_time(best_s)} {how}, {less} with {now.in_use}"
    return SyncVerdict(best, reason, True, (best, best_s))


def may_change(workers: Sequence[WorkerState]) -> bool:
    """Whether all work in peace: nobody joins, leaves, meets, is away or has finished."""
    there = [worker for worker in workers if not isinstance(worker.phase, Lost)]
    return bool(there) and all(
        worker.is_ready
        and worker.meeting is None
        and not worker.is_departing
        and worker.awaited_since_s is None
        and not isinstance(worker.phase, Finished)
        for worker in there
    )


def _expected(
    now: SyncSituation, predictions: Mapping[SyncMethod, StepPrediction], measured_s: float
) -> dict[SyncMethod, float]:
    """Seconds of a step by each other method."""
    unseen = unseen_by_kind({**now.tried, now.in_use: measured_s}, predictions)
    return {
        method: now.tried.get(method, prediction.step_s * unseen_of(method, unseen, now.in_use))
        for method, prediction in predictions.items()
        if method != now.in_use
    }


def unseen_by_kind(
    known: Mapping[SyncMethod, float], predictions: Mapping[SyncMethod, StepPrediction]
) -> dict[Kind, float]:
    """How many times what is predicted the `known` methods' steps take, at least 1; of a kind the most."""
    unseen: dict[Kind, float] = {}
    for method, step_s in known.items():
        if method in predictions:
            times = max(1.0, step_s / predictions[method].step_s)
            unseen[_kind(method)] = max(times, unseen.get(_kind(method), 1.0))
    return unseen


def unseen_of(method: SyncMethod, unseen: Mapping[Kind, float], in_use: SyncMethod) -> float:
    """How many times what is predicted a step takes, as far as anybody knows.

    Of a kind that nobody has used as many as of those that were, in the geometric mean. Rounds keep to
    rounds: of their steps the model doesn't see another part.
    """
    if (own := unseen.get(_kind(method))) is not None:
        return own
    alike = [hope for (*_, batches), hope in unseen.items() if batches == method.batches]
    return geometric_mean(alike) if alike else unseen.get(_kind(in_use), 1.0)


def _best(expected: Mapping[SyncMethod, float], measured_s: float) -> SyncMethod:
    """The fastest, or what loses less and is no more than the margin slower; of equals the first.

    That has to be worth a change itself, if the fastest is.
    """
    fastest = min(expected, key=lambda method: expected[method])
    limit_s = min((1 + MARGIN) * expected[fastest], (1 - MARGIN) * measured_s)
    near = [method for method, step_s in expected.items() if step_s < limit_s] or [fastest]
    return min(near, key=lambda method: (*_loss_rank(method), expected[method]))


def _loss_rank(method: SyncMethod) -> tuple[bool, int]:
    """Rounds lose more than any codec."""
    return method.rounds is not None, _LOSES.index(method.codec)


def _kind(method: SyncMethod) -> Kind:
    """Methods of one kind go the same ways: the model errs alike about them."""
    return method.topology, bool(method.server_nodes), method.codec, method.batches


def _why_not(now: SyncSituation, measured: MeasuredStep, best: SyncMethod, best_s: float) -> str:
    """Why the present method stays; empty: it doesn't."""
    gain_s, step = measured.step_s - best_s, shown_time(measured.step_s)
    if gain_s <= 0:
        return f"a step of {step} is measured, and no less is expected of any other method"
    gain = gain_s / measured.step_s
    told = f"{best} would save {gain:.1%} of the {step} that are measured"
    if gain <= MARGIN:
        return f"{told}, and a change is made for over {MARGIN:.0%}"
    if measured.is_rough and gain <= ROUGH_MARGIN:
        return f"{told}, and after so few steps a change is made for over {ROUGH_MARGIN:.0%}"
    if gain_s * now.steps_left <= CHANGE_COST_S:
        return f"{told}, {shown_time(gain_s * now.steps_left)} until the end: less than a change costs"
    interval_s = min(FIRST_INTERVAL_S * max(1, now.changes), CHANGE_INTERVAL_S)
    if now.since_change_s is not None and now.since_change_s < interval_s:
        return f"{told}, and the next change is made {interval_s:.0f} s after the last one"
    return ""
