"""Which models the trainer evaluates, and what follows from what it found: pure functions."""

import math
from collections.abc import Collection

from peerloom.kit.job_inputs import digest_in
from peerloom.services.trainer.jobs.sample_ledger import steps_per_epoch
from peerloom.v1.trainer_pb2 import Evaluation, EvaluationVerdict, Job, JobSpec
from peerloom.worker.evaluator.evaluation_order import Evaluated, EvaluationAnswer, Unable, Unfit
from peerloom.worker.tasks import built_in

# The most samples near a tie that are forgiven, as a part of the test set: beyond, a model could be made of
# ties, and any metric be told of it. An honest one loses far fewer: of its near ties rounding turns few, some
# of them to the better.
MOST_TIES = 0.02
# Sums of scores differ by as much for each sample: they are added in another order, in parts.
SUM_ROUNDING = 1e-6


def why_not_evaluated(spec: JobSpec) -> Unable | None:
    """Why the trainer can't judge what becomes of this job; None when it can.

    It has to know that its own test set is that of the nodes, and runs nobody else's code.
    """
    entry = built_in.BUILT_IN.get(spec.task)
    if spec.code_digest:
        return Unable("BRINGS_CODE", "the job brings code, which doesn't run on the trainer's machine")
    if entry is None:
        return Unable(
            "NOT_BUILT_IN",
            f"the task {spec.task} isn't built in, and no other code runs on the trainer's machine",
        )
    given = {name: spec.task_arguments.get(name, "") for name in sorted(entry.paths)}
    for name, value in given.items():
        if value and not digest_in(value):
            return Unable(
                "DATA_ON_NODES",
                f"its data set ({name}={value}) lies on the nodes; with one that is handed in, "
                f"{name}=artifact:DIGEST, the model is evaluated",
            )
    if entry.own_data_vary and not any(given.values()):
        return Unable("DATA_VARY", f"{entry.own_data_vary}; a data set that is handed in has it evaluated")
    return None


def not_evaluated(why: Unable, told: float | None) -> Evaluation:
    """The record's entry for a model that nobody has looked at."""
    return Evaluation(
        verdict=EvaluationVerdict.EVALUATION_VERDICT_NOT_EVALUATED,
        reason=f"not evaluated: {why.reason}",
        reason_code=why.code,
        told=told,
    )


def told_of(job: Job) -> float | None:
    """The metric of the job's end, as the workers told it; None when they told of none there."""
    progress = job.progress
    is_whole = progress.epoch == job.spec.epochs
    if progress.stopped_at_step:
        is_whole = progress.epoch * steps_per_epoch(job) == progress.stopped_at_step
    return progress.metric if is_whole else None


def not_as_told(evaluation: Evaluation) -> str:
    """Why a job failed whose evaluation differs."""
    return f"the model isn't what its workers told of: {evaluation.reason}"


def is_proven(owners: Collection[str]) -> bool:
    """Whether a model that isn't what was told of is a lie of its node; `owners` are all its workers'.

    The metric is the sum of what all of them say they scored, so with several owners it is nobody's alone.
    """
    return len(owners) == 1


def judge(job: Job, answer: EvaluationAnswer) -> Evaluation:
    """Whether what the evaluator found of the job's model is what its workers told of."""
    told = told_of(job)
    match answer:
        case Unable():
            return not_evaluated(answer, told)
        case Unfit(reason):
            return _differs("NO_MODEL_OF_THE_TASK", f"the file is no model of the task: {reason}", told)
        case Evaluated():
            return _compare(job.ledger.training_samples, told, answer)


def tolerance(found: Evaluated) -> float:
    """How far the metric may be from that of the workers' machines, each sample's score being 0 to 1.

    As many samples as lie near a tie may be turned by rounding: one of them at least, at most 2 % of all.
    """
    most = max(1.0, MOST_TIES * found.test_samples)
    return min(found.near_ties, most) / found.test_samples + SUM_ROUNDING


def _compare(training_samples: int, told: float | None, found: Evaluated) -> Evaluation:
    if training_samples != found.training_samples:
        why = f"its workers told of {training_samples} training samples, and the task has "
        return _differs("DATA_DIFFER", f"{why}{found.training_samples}", told, found)
    if told is None:
        why = "its workers told of no metric after the last epoch"
        return _differs("NO_METRIC", why, told, found)
    apart = abs(told - found.metric)
    is_same = apart <= tolerance(found) or (math.isnan(told) and math.isnan(found.metric))
    name, tested = found.metric_name, f"on the {found.test_samples} test samples"
    if not is_same:
        why = f"the model's {name} {tested} is {found.metric:.4f}, but its workers told of {told:.4f}"
        return _differs("METRIC_DIFFERS", why, told, found)
    why = f"the trainer found the {name} that its workers told of {tested}"
    agrees = EvaluationVerdict.EVALUATION_VERDICT_AGREES
    return _entry(Evaluation(verdict=agrees, reason=why, told=told), found)


def _differs(code: str, why: str, told: float | None, found: Evaluated | None = None) -> Evaluation:
    differs = EvaluationVerdict.EVALUATION_VERDICT_DIFFERS
    return _entry(Evaluation(verdict=differs, reason=why, reason_code=code, told=told), found)


def _entry(evaluation: Evaluation, found: Evaluated | None) -> Evaluation:
    if found is not None:
        evaluation.found, evaluation.metric_name = found.metric, found.metric_name
        evaluation.test_samples, evaluation.tolerance = found.test_samples, tolerance(found)
    return evaluation
