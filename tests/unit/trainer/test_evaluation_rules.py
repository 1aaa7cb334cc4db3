"""Which models the trainer evaluates, and what follows: computed by hand."""

import math

import pytest

from peerloom.services.trainer.models.evaluation_rules import (
    is_proven,
    judge,
    tolerance,
    why_not_evaluated,
)
from peerloom.v1.trainer_pb2 import EvaluationVerdict, Job, JobProgress, JobSpec, Ledger
from peerloom.worker.evaluator.evaluation_order import (
    Evaluated,
    Unable,
    Unfit,
    answer_from_json,
    answer_to_json,
)

AGREES = EvaluationVerdict.EVALUATION_VERDICT_AGREES
DIFFERS = EvaluationVerdict.EVALUATION_VERDICT_DIFFERS
NOT_EVALUATED = EvaluationVerdict.EVALUATION_VERDICT_NOT_EVALUATED
ARTIFACT = f"artifact:{'d' * 64}"


def job(told: float, epoch: int = 3) -> Job:
    """A job of 3 epochs over 1,437 samples, whose workers told of this metric after an epoch."""
    progress = JobProgress(epoch=epoch, metric=told, metric_name="accuracy")
    return Job(spec=JobSpec(task="digits", epochs=3), progress=progress, ledger=Ledger(training_samples=1437))


def found(metric: float, near_ties: float = 0.0, test_samples: int = 360) -> Evaluated:
    return Evaluated("accuracy", metric, near_ties, 1437, test_samples)


def test_the_same_to_the_last_sample_agrees() -> None:
    said = judge(job(340 / 360), found(340 / 360))
    assert (said.verdict, said.reason_code, said.told, said.found) == (AGREES, "", 340 / 360, 340 / 360)
    assert (said.metric_name, said.test_samples) == ("accuracy", 360)


@pytest.mark.parametrize(("told", "verdict"), [(339, DIFFERS), (340, AGREES), (341, DIFFERS)])
def test_without_near_ties_one_sample_decides(told: int, verdict: int) -> None:
    assert judge(job(told / 360), found(340 / 360)).verdict == verdict


@pytest.mark.parametrize(("told", "verdict"), [(336, DIFFERS), (337, AGREES), (343, AGREES), (344, DIFFERS)])
def test_each_near_tie_forgives_a_sample(told: int, verdict: int) -> None:
    assert judge(job(told / 360), found(340 / 360, near_ties=3.0)).verdict == verdict


def test_a_model_of_ties_forgives_two_in_a_hundred() -> None:
    """2 % of 360 samples are 7.2; of ten samples one is forgiven all the same."""
    assert tolerance(found(0.1, near_ties=360.0)) == pytest.approx(7.2 / 360 + 1e-6)
    assert tolerance(found(0.1, near_ties=10.0, test_samples=10)) == pytest.approx(0.1 + 1e-6)
    assert judge(job(0.94), found(0.1, near_ties=360.0)).verdict == DIFFERS


def test_a_difference_is_told_so_that_a_stranger_understands_it() -> None:
    said = judge(job(0.94), found(0.1))
    assert said.reason_code == "METRIC_DIFFERS"
    assert said.reason == (
        "the model's accuracy on the 360 test samples is 0.1000, but its workers told of 0.9400"
    )


@pytest.mark.parametrize("told", [math.nan, math.inf, -math.inf, 1e308])
def test_what_is_no_metric_agrees_with_none(told: float) -> None:
    assert judge(job(told), found(0.5, near_ties=360.0)).verdict == DIFFERS


def test_a_metric_that_is_no_number_agrees_with_itself_only() -> None:
    assert judge(job(math.nan), found(math.nan)).verdict == AGREES
    assert judge(job(0.5), found(math.nan)).verdict == DIFFERS


def test_who_tells_of_no_metric_or_of_other_samples_differs() -> None:
    assert judge(job(0.9, epoch=2), found(0.9)).reason_code == "NO_METRIC"
    stopped = job(0.9, epoch=2)
    stopped.spec.batch_size, stopped.progress.stopped_at_step = 479, 6
    assert judge(stopped, found(0.9)).verdict == AGREES, "its script ended the loop with that epoch"
    other = job(0.9)
    other.ledger.training_samples = 1438
    said = judge(other, found(0.9))
    assert (said.verdict, said.reason_code) == (DIFFERS, "DATA_DIFFER")
    assert said.reason == "its workers told of 1438 training samples, and the task has 1437"


def test_a_file_that_is_no_model_differs_and_a_dead_evaluator_says_nothing() -> None:
    unfit = judge(job(0.9), Unfit("it has no '0.weight'"))
    assert (unfit.verdict, unfit.reason_code) == (DIFFERS, "NO_MODEL_OF_THE_TASK")
    unable = judge(job(0.9), Unable("TOO_LATE", "it took more than 5 s"))
    assert (unable.verdict, unable.reason_code) == (NOT_EVALUATED, "TOO_LATE")
    assert unable.reason == "not evaluated: it took more than 5 s"
    assert not unable.HasField("found")


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (JobSpec(task="digits"), ""),
        (JobSpec(task="digits", code_digest="c" * 64), "BRINGS_CODE"),
        (JobSpec(task="mine:Task"), "NOT_BUILT_IN"),
        (JobSpec(task="mnist", task_arguments={"data": "/data/mnist"}), "DATA_ON_NODES"),
        (JobSpec(task="mnist", task_arguments={"data": ARTIFACT}), ""),
        (JobSpec(task="text"), "DATA_VARY"),
        (JobSpec(task="text", task_arguments={"data": ARTIFACT, "width": "8"}), ""),
    ],
)
def test_what_the_trainer_can_judge_is_known_from_the_job_alone(spec: JobSpec, code: str) -> None:
    """So no worker can bring it about that its model isn't looked at."""
    why_not = why_not_evaluated(spec)
    assert (why_not.code if why_not else "") == code


def test_a_lie_is_proven_of_one_owner_and_of_nobody_among_several() -> None:
    assert is_proven({"eve"})
    assert not is_proven({"eve", "ada"})
    assert not is_proven(set())


@pytest.mark.parametrize("answer", [found(0.5, 1.5), Unfit("no"), Unable("NO_TORCH", "none")])
def test_an_answer_is_read_as_it_was_written(answer: Evaluated | Unfit | Unable) -> None:
    assert answer_from_json(answer_to_json(answer)) == answer


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        '{"kind": "Evaluated"}',
        '{"kind": "Evaluated", "metric_name": "a", "metric": Infinity, "near_ties": 0, '
        '"training_samples": 1, "test_samples": 1}',
        '{"kind": "Evaluated", "metric_name": "a", "metric": 0.5, "near_ties": 2, "training_samples": 1, '
        '"test_samples": 1}',
        '{"kind": "Other", "reason": "x"}',
    ],
)
def test_what_is_no_answer_is_refused(line: str) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        answer_from_json(line)
