"""Whether a running job takes another way to synchronise: pure functions of predictions and measurements.

A prediction proposes, and the measured steps decide (`expected_steps`). So a change that doesn't keep its
promise is taken back at once, others of its kind aren't made after it, and noise below the margin moves
nothing back and forth. Where predictions are too near to each other to tell which topology is the fastest, a
long job tries them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from peerloom.kit.codec_choices import POWER_SGD
from peerloom.kit.quantity_texts import shown_s
from peerloom.kit.sync_method import BF16, FP16, INT4, INT8, MXFP4, NONE, ONE_BIT, TOP_K, TWO_BIT, SyncMethod
from peerloom.kit.sync_model.sync_choice import MARGIN, RankedMethod
from peerloom.services.trainer.generations.expected_steps import expected_steps, kind_of
from peerloom.services.trainer.workers.state import Finished, Lost, WorkerState

STEPS_MEASURED, MEASURED_S = 8, 0.5  # fewer and shorter ones say little of a method
LONG_STEPS_MEASURED, LONG_MEASURED_S = 3, 2.0  # long ones vary less, and each costs as much as a change
ROUGH_MARGIN = 0.5  # before so many: noise is less, and each step by a way so slow is lost
CHANGE_COST_S = 1.0  # to meet anew beside the training, and for DDP to cut its buckets again
FIRST_INTERVAL_S, CHANGE_INTERVAL_S = 10.0, 30.0  # what hasn't been tried is tried early in a job
RETURN_MARGIN = 0.02  # both were just measured by the same workers, which is surer than a prediction
DOUBT = 0.1  # of a prediction: so much slower may as well be faster
GENTLER_LEAST_S = CHANGE_COST_S / MARGIN  # to come: a change that saves no time costs no more than is allowed
TRY_EACH_S = 60.0  # to come for each change so far: a try costs two changes and a few steps, some 3 s
_LOSES = (NONE, BF16, FP16, INT8, MXFP4, INT4, POWER_SGD, TWO_BIT, ONE_BIT, TOP_K)  # more and more


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
    `since_change_s` None where there was no change, of which the job has made so many `changes` by now. With
    `is_new` these workers came to the method in use by the last of them, and hadn't used it before. `roughly`
    are those tried ones that were left after their first steps.
    """

    in_use: SyncMethod
    predicted: Sequence[RankedMethod]
    measured: MeasuredStep | None
    steps_left: int
    tried: Mapping[SyncMethod, float] = field(default_factory=dict)
    since_change_s: float | None = None
    changes: int = 0
    is_new: bool = False
    roughly: Collection[SyncMethod] = ()


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
    expected = expected_steps(now.in_use, now.measured.step_s, now.tried, predictions, now.roughly)
    if not expected:
        return SyncVerdict(now.in_use, "there is no other of this quality")
    back = _better_before(now, now.measured, expected)
    if back is not None:
        return _changed(now, now.measured, back, expected[back])
    gentle = _gentler_than_first(now, now.measured, expected)
    if gentle is not None:
        reason = (
            f"a step of {shown_s(expected[gentle])} is predicted, and one of {shown_s(now.measured.step_s)} "
            f"measured with {now.in_use}, which the job began with, and which loses more"
        )
        return SyncVerdict(gentle, reason, True, (gentle, expected[gentle]))
    best = _best(expected, now.measured.step_s)
    why_not = _why_not(now, now.measured, best, expected[best])
    if not why_not:
        return _changed(now, now.measured, best, expected[best])
    attempt = _worth_a_try(now, now.measured, expected)
    if attempt is None:
        return SyncVerdict(now.in_use, why_not, False, (best, expected[best]))
    about = f"{shown_s(expected[attempt])} is predicted, near to the {shown_s(now.measured.step_s)}"
    reason = f"a step of {about} measured with {now.in_use}: there is time to try it"
    return SyncVerdict(attempt, reason, True, (attempt, expected[attempt]))


def _changed(now: SyncSituation, measured: MeasuredStep, best: SyncMethod, best_s: float) -> SyncVerdict:
    how = "was measured before" if best in now.tried else "is predicted"
    less = f"{1 - best_s / measured.step_s:.0%} less than the {shown_s(measured.step_s)} measured"
    reason = f"a step of {shown_s(best_s)} {how}, {less} with {now.in_use}"
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


def _best(expected: Mapping[SyncMethod, float], measured_s: float) -> SyncMethod:
    """The fastest, or what loses less and is no more than the margin slower; of equals the first.

    That has to be worth a change itself, if the fastest is.
    """
    fastest = min(expected, key=lambda method: expected[method])
    limit_s = min((1 + MARGIN) * expected[fastest], (1 - MARGIN) * measured_s)
    near = [method for method, step_s in expected.items() if step_s < limit_s] or [fastest]
    return _gentlest(near, expected)


def _gentlest(methods: Sequence[SyncMethod], expected: Mapping[SyncMethod, float]) -> SyncMethod:
    return min(methods, key=lambda method: (*_loss_rank(method), expected[method]))


def _better_before(
    now: SyncSituation, measured: MeasuredStep, expected: Mapping[SyncMethod, float]
) -> SyncMethod | None:
    """What these workers come back to: the fastest that they used before a change that made steps longer."""
    used = [method for method in expected if method in now.tried]
    if not now.is_new or measured.is_rough or not used:
        return None
    before = min(used, key=lambda method: expected[method])
    gain_s = measured.step_s - expected[before]
    loses_more = _loss_rank(before) > _loss_rank(now.in_use)
    is_plain = gain_s > (MARGIN if loses_more else RETURN_MARGIN) * measured.step_s
    return before if is_plain and gain_s * now.steps_left > CHANGE_COST_S else None


def _gentler_than_first(
    now: SyncSituation, measured: MeasuredStep, expected: Mapping[SyncMethod, float]
) -> SyncMethod | None:
    """What loses less than the method that a job began with, before anything was measured, and is as fast."""
    if now.changes or measured.is_rough or now.steps_left * measured.step_s < GENTLER_LEAST_S:
        return None
    limit_s = (1 + MARGIN) * min(measured.step_s, *expected.values())
    gentler = [one for one in expected if _loss_rank(one) < _loss_rank(now.in_use)]
    near = [method for method in gentler if expected[method] <= limit_s]
    return _gentlest(near, expected) if near else None


def _worth_a_try(
    now: SyncSituation, measured: MeasuredStep, expected: Mapping[SyncMethod, float]
) -> SyncMethod | None:
    """A method over a topology that these workers haven't used, if it may be the fastest, in a long job.

    Codecs and rounds aren't tried so: what they save is known better, and what they lose isn't measured.
    """
    is_short = now.steps_left * measured.step_s < TRY_EACH_S * (1 + now.changes)
    if measured.is_rough or is_short or _waits_s(now):
        return None
    used = {kind_of(method) for method in (*now.tried, now.in_use)}
    new = [one for one in expected if kind_of(one) not in used and _sends_alike(one, now.in_use)]
    near = [method for method in new if expected[method] <= (1 + DOUBT) * measured.step_s]
    return min(near, key=lambda method: expected[method], default=None)


def _sends_alike(method: SyncMethod, other: SyncMethod) -> bool:
    """Whether both send values in the same form, and as often."""
    return (method.codec, method.batches) == (other.codec, other.batches)


def _waits_s(now: SyncSituation) -> float:
    """How long after each other changes are made, if the last one was less long ago; 0: none is too soon."""
    interval_s = min(FIRST_INTERVAL_S * max(1, now.changes), CHANGE_INTERVAL_S)
    return interval_s if now.since_change_s is not None and now.since_change_s < interval_s else 0.0


def _loss_rank(method: SyncMethod) -> tuple[bool, int]:
    """Rounds lose more than any codec."""
    return method.rounds is not None, _LOSES.index(method.codec)


def _why_not(now: SyncSituation, measured: MeasuredStep, best: SyncMethod, best_s: float) -> str:
    """Why the present method stays; empty: it doesn't."""
    gain_s, step = measured.step_s - best_s, shown_s(measured.step_s)
    if gain_s <= 0:
        return f"a step of {step} is measured, and no less is expected of any other method"
    gain = gain_s / measured.step_s
    told = f"{best} would save {gain:.1%} of the {step} that are measured"
    if gain <= MARGIN:
        return f"{told}, and a change is made for over {MARGIN:.0%}"
    if measured.is_rough and gain <= ROUGH_MARGIN:
        return f"{told}, and after so few steps a change is made for over {ROUGH_MARGIN:.0%}"
    if gain_s * now.steps_left <= CHANGE_COST_S:
        return f"{told}, {shown_s(gain_s * now.steps_left)} until the end: less than a change costs"
    if interval_s := _waits_s(now):
        return f"{told}, and the next change is made {interval_s:.0f} s after the last one"
    return ""
