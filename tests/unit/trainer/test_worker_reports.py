"""What a worker says moves its job only as far as it can be true: it runs on a machine that isn't ours."""

import math
from typing import Any

import pytest
from trainer_room import prepared_for, until
from trainer_site import SPEC, Site, finish, step

from peerloom.kit.elastic_scripts import SCRIPT_TASK
from peerloom.services.trainer.jobs.sample_ledger import show_verdict, why_trained
from peerloom.services.trainer.workers.reports import (
    total_steps,
    why_not_complete,
    why_not_finished,
    why_not_prepared,
    why_not_said,
    why_not_step,
)
from peerloom.services.trainer.workers.stage_reports import why_not_surveyed
from peerloom.services.trainer.workers.state import Finished, WorkerState
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.common_pb2 import Script
from peerloom.v1.trainer_pb2 import (
    Checkpoint,
    EpochProgress,
    Job,
    JobSpec,
    JobState,
    Ledger,
    LedgerStretch,
    ModelPart,
    ModelStage,
    ScriptExit,
    StepProgress,
    Worker,
    WorkerAborted,
    WorkerBeat,
    WorkerFinished,
    WorkerLeaving,
    WorkerPrepared,
    WorkerReady,
    WorkerSessionRequest,
    WorkerSteps,
)

FILES = Checkpoint(artifact=Artifact(digest="a" * 64))
NAN, INF = float("nan"), float("inf")


def job_at(step: int, samples: int = 25) -> Job:
    """A job of 2 epochs of `samples` in batches of 10, so many steps of which are reported."""
    spec = JobSpec(task="lines:Lines", epochs=2, batch_size=10, learning_rate=0.5)
    job = Job(job_id="job-1", spec=spec, generation=3, ledger=Ledger(training_samples=samples))
    job.progress.step = step
    return job


def finished_job(end_sample: int = 25) -> Job:
    job = job_at(6)
    stretch = LedgerStretch(
        generation=1, last_generation=3, first_step=1, last_step=6, first_epoch=1, last_epoch=2
    )
    stretch.end_sample = end_sample
    job.ledger.stretches.append(stretch)
    return job


def word(**said: Any) -> WorkerFinished:
    return WorkerFinished(generation=3, **{"parameters_digest": "a" * 64, **said})


def having_finished(*digests: str) -> list[WorkerState]:
    return [
        WorkerState(f"worker-{n}", Finished(word(parameters_digest=digest)))
        for n, digest in enumerate(digests)
    ]


async def test_a_worker_that_says_it_is_done_too_early_leaves_no_model() -> None:
    """After 2 of 4 steps it hands in a model of its own: the job was SUCCEEDED with that."""
    async with Site().serving() as site:
        job_id = await site.submit()
        worker = await site.working()
        said = WorkerFinished(generation=1, model=Artifact(digest="f" * 64), parameters_digest="a" * 64)
        worker.say(WorkerSessionRequest(finished=said))
        reason = "it says that it has finished after 2 of 4 steps"
        assert (await worker.hear("end")).end.reason == reason
        await until(lambda: site.job(job_id).workers[0].ended)
        assert site.job(job_id).workers[0].end_reason == reason
        assert not site.job(job_id).result.model.digest


async def test_a_job_is_what_was_submitted_whatever_a_worker_says_of_it() -> None:
    """A worker's answer was put in place of the whole spec."""
    async with Site(slots=2).serving() as site:
        job_id = await site.submit()
        first = await site.worker()
        await until(lambda: len(site.workers) == 2)
        second = site.workers[1]
        asked = (await second.hear("prepare")).prepare.spec
        other = prepared_for(asked, samples=40)
        other.epochs = 9
        second.say(WorkerSessionRequest(prepared=other))
        reason = "its epochs is 9, the job's is 1: it has another version of the task"
        assert (await second.hear("end")).end.reason == reason
        await first.hear("configure")
        job = site.job(job_id)
        assert (job.spec.epochs, job.spec.batch_size, job.progress.total_steps) == (1, 10, 4)
        assert job.spec.task == SPEC.task


async def test_a_worker_whose_training_set_has_another_size_is_let_go() -> None:
    async with Site(slots=2).serving() as site:
        await site.submit()
        await site.worker()
        second = site.workers[1]
        asked = (await second.hear("prepare")).prepare.spec
        second.say(WorkerSessionRequest(prepared=prepared_for(asked, samples=50)))
        reason = (await second.hear("end")).end.reason
        assert reason == "its training set has 50 samples, that of the others 40"


async def test_the_first_worker_fills_in_what_the_job_left_open_and_the_rest_stays() -> None:
    site = Site()
    record = site.room.new_record(task="lines:Lines", epochs=2)
    record.task_loaded(WorkerPrepared(training_samples=25, epochs=99, batch_size=10, learning_rate=0.5))
    spec = record.job.spec
    assert (spec.epochs, spec.batch_size, spec.learning_rate) == (2, 10, 0.5)
    assert (record.job.progress.total_steps, record.job.progress.total_epochs) == (6, 2)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"epochs": 1_000_001}, "epochs is 1000001"),
        ({"batch_size": 2**24 + 1}, "batch_size is 16777217"),
        ({"learning_rate": NAN}, "learning_rate is nan"),
        ({"learning_rate": 0.25}, "learning_rate is 0.25, the job's is 0.5"),
        ({"speed_gflops": NAN}, "its speed_gflops is nan, but must be from 0 to 1,000,000,000"),
        ({"speed_gflops": -1.0}, "its speed_gflops is -1.0"),
        ({"training_samples": 0}, "has 0 samples"),
        ({"training_samples": 2**40 + 1}, "1 to 2^40"),
    ],
)
def test_what_a_task_can_not_be_is_named(change: dict[str, Any], reason: str) -> None:
    job = job_at(0, samples=0)
    fits = {"training_samples": 25, "epochs": 2, "batch_size": 10, "learning_rate": 0.5}
    assert why_not_prepared(job, WorkerPrepared(**fits)) == ""
    assert reason in why_not_prepared(job, WorkerPrepared(**{**fits, **change}))


def test_steps_follow_each_other_and_use_the_samples_that_are_theirs() -> None:
    """25 samples in batches of 10: steps of 10, 10 and 5 in each of two epochs."""
    job = job_at(4)
    assert total_steps(job) == 6
    fifth = {"step": 5, "epoch": 2, "first_sample": 10, "samples": 10, "generation": 3, "step_s": 0.5}
    wrong = [
        {"step": 6, "first_sample": 20, "samples": 5},
        {"step": 2**63},
        {"epoch": 1},
        {"first_sample": 0},
        {"samples": 11},
        {"generation": 4},
        {"generation": 0},
        {"step_s": NAN},
        {"step_s": -1.0},
        {"step_s": 1e-320},
        {"samples_per_s": INF},
    ]
    for change in ({}, {"step": 3}, {"step_s": 0.0}):
        assert why_not_step(job, StepProgress(**{**fifth, **change})) == ""
    for change in wrong:
        assert why_not_step(job, StepProgress(**{**fifth, **change})), change
    sixth = StepProgress(step=6, epoch=2, first_sample=20, samples=5, generation=3)
    assert why_not_step(job_at(5), sixth) == ""


def test_a_step_is_a_batch_with_rounds_too() -> None:
    """45 samples in batches of 10, three a round: steps of 10, and the epoch's last of 5."""
    job = job_at(3, samples=45)
    job.spec.sync = "period=3"
    assert total_steps(job) == 10
    fourth = {"step": 4, "epoch": 1, "first_sample": 30, "samples": 10, "generation": 3}
    assert why_not_step(job, StepProgress(**fourth)) == ""
    for wrong in ({"samples": 15}, {"first_sample": 10}, {"epoch": 2}):
        assert why_not_step(job, StepProgress(**{**fourth, **wrong})), wrong


@pytest.mark.parametrize(
    "message",
    [
        WorkerSessionRequest(epoch=EpochProgress(epoch=1)),
        WorkerSessionRequest(checkpoint=Checkpoint(step=1, artifact=Artifact(digest="a" * 64))),
    ],
)
def test_nothing_is_reached_before_the_task_is_loaded(message: WorkerSessionRequest) -> None:
    assert why_not_said(Job(spec=JobSpec(task="lines:Lines")), message) != ""


def test_no_step_is_made_before_the_task_is_loaded() -> None:
    reason = "it reports step 1 of 0 after step 0"
    assert why_not_step(Job(spec=JobSpec(task="lines:Lines")), StepProgress(step=1)) == reason
    script = Job(spec=JobSpec(task="train.py", script=Script()), generation=1)
    assert why_not_step(script, StepProgress(step=1)) == reason


@pytest.mark.parametrize(
    ("ages", "is_right"), [([0.5, 0.0], True), ([0.5], False), ([NAN, 0], False), ([-1, 0], False)]
)
def test_each_reported_step_has_an_age(ages: list[float], is_right: bool) -> None:
    said = WorkerSteps(steps=[StepProgress(step=1), StepProgress(step=2)], ages_s=ages)
    assert (why_not_said(job_at(0), WorkerSessionRequest(steps=said)) == "") is is_right


@pytest.mark.parametrize(
    "message",
    [
        WorkerSessionRequest(epoch=EpochProgress(epoch=2)),
        WorkerSessionRequest(epoch=EpochProgress(epoch=1, metric_name="m" * 64)),
        WorkerSessionRequest(checkpoint=Checkpoint(step=4, artifact=Artifact(digest="../x"))),
        WorkerSessionRequest(checkpoint=Checkpoint(step=7, artifact=Artifact(digest="a" * 64))),
        WorkerSessionRequest(beat=WorkerBeat(compute_s_per_sample=NAN)),
        WorkerSessionRequest(beat=WorkerBeat(compute_s_per_sample=1e-320)),
        WorkerSessionRequest(leaving=WorkerLeaving(grace_s=NAN)),
    ],
)
def test_what_can_not_be_is_not_entered(message: WorkerSessionRequest) -> None:
    """After step 4 of 6, thus after the first of two epochs."""
    assert why_not_said(job_at(4), message) != ""


@pytest.mark.parametrize(
    ("plan", "said", "reason"),
    [
        ("pipeline=2", ModelStage(number=1, first_layer=3, end_layer=8), ""),
        ("pipeline=2", ModelStage(number=2, first_layer=3, end_layer=8), "layers 3 to 8 as stage 2"),
        ("pipeline=2", ModelStage(number=1, first_layer=8, end_layer=8), "layers 8 to 8 as stage 1"),
        ("pipeline=2,widths=2/1", ModelStage(first_layer=0, end_layer=8, workers=2, turn=1), ""),
        ("pipeline=2,widths=2/1", ModelStage(end_layer=8, workers=2, turn=2), "stage 0 as worker 2 of 2"),
        ("pipeline=2,widths=2/1", ModelStage(number=1, end_layer=8, workers=2), "stage 1 as worker 0 of 2"),
        ("auto", ModelStage(number=1, end_layer=8, workers=2, turn=1), ""),
        ("auto", ModelStage(number=1, end_layer=8, workers=2, turn=2), "stage 1 as worker 2 of 2"),
        ("auto", ModelStage(number=1, end_layer=8, workers=64), "stage 1 as worker 0 of 64"),
        ("pipeline=2", ModelStage(end_layer=1, last_name="l" * 129), "names have more than 128"),
        ("data", ModelStage(end_layer=1), "and the job's plan is data"),
    ],
)
def test_which_stage_a_worker_can_hold(plan: str, said: ModelStage, reason: str) -> None:
    job = job_at(3)
    job.spec.plan = plan
    found = why_not_said(job, WorkerSessionRequest(ready=WorkerReady(generation=3, stage=said)))
    assert (reason in found) if reason else (found == "")


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([ModelPart(end_layer=2), ModelPart(first_layer=2, end_layer=3)], ""),
        ([], "tells of 0 parts"),
        ([ModelPart(end_layer=1)] * 1001, "1000 are the most"),
        ([ModelPart(first_layer=1, end_layer=2)], "layers 1 to 2, after 0"),
        ([ModelPart(end_layer=0)], "layers 0 to 0, after 0"),
        ([ModelPart(end_layer=1, kept_bytes=math.nan)], "kept_bytes of layer 0 are nan"),
        ([ModelPart(end_layer=1, forward_operations=-1.0)], "forward_operations of layer 0"),
    ],
)
def test_what_a_worker_tells_of_a_model_can_be_planned_by(parts: list[ModelPart], reason: str) -> None:
    job = Job(spec=JobSpec(plan="auto"))
    found = why_not_surveyed(job, WorkerPrepared(parts=parts))
    assert (reason in found) if reason else (found == "")
    assert why_not_surveyed(Job(spec=JobSpec(plan="data")), WorkerPrepared()) == ""
    assert why_not_surveyed(Job(spec=JobSpec(plan="data")), WorkerPrepared(parts=[ModelPart(end_layer=1)]))


@pytest.mark.parametrize(
    ("rank", "step", "said", "reason"),
    [
        (0, 6, word(model=Artifact(digest="f" * 64)), ""),
        (1, 5, word(model=Artifact()), ""),  # rank 0's last report may be on its way
        (0, 5, word(model=Artifact(digest="f" * 64)), "after 5 of 6 steps"),
        (0, 6, word(), "brings no model"),
        (0, 6, word(model=Artifact(digest="F" * 64)), "brings no model"),
        (1, 6, word(model=Artifact(digest="f" * 64)), "though its rank is 1"),
        (1, 6, word(parameters_digest=""), "no SHA-256"),
    ],
)
def test_who_has_finished_made_the_last_step_and_rank_0_alone_brings_the_model(
    rank: int, step: int, said: WorkerFinished, reason: str
) -> None:
    found = why_not_finished(job_at(step), Worker(worker_id="worker-1", rank=rank, generation=3), said)
    assert (reason in found) if reason else not found


def test_who_belongs_to_an_older_generation_only_has_not_finished() -> None:
    worker = Worker(worker_id="worker-1", generation=2)
    assert "belongs to generation 2 only" in why_not_finished(
        job_at(6), worker, word(model=Artifact(digest="f" * 64))
    )


def test_a_result_needs_every_sample_once_every_step_and_one_word_of_all() -> None:
    assert why_not_complete(finished_job(), having_finished("a" * 64, "a" * 64)) == ""
    differ = why_not_complete(finished_job(), having_finished("a" * 64, "b" * 64))
    assert "final parameters differ (2 versions)" in differ
    missing = why_not_complete(finished_job(end_sample=20), having_finished("a" * 64))
    assert "from sample 20 of epoch 2 to sample 0 of epoch 3: 5 samples are missing" in missing
    early = finished_job()
    early.progress.step = 5
    assert "5 of 6 steps" in why_not_complete(early, having_finished("a" * 64))


def test_a_script_may_end_its_loop_before_the_last_step_and_no_other_task() -> None:
    worker = Worker(worker_id="worker-1", generation=3)
    said = word(model=Artifact(digest="f" * 64), stopped_at_step=4)
    assert "only a script may" in why_not_finished(job_at(4), worker, said)
    job = job_at(4)
    job.spec.task = SCRIPT_TASK
    assert why_not_finished(job, worker, said) == ""
    job.progress.step = 3
    assert "after 3 of 4 steps" in why_not_finished(job, worker, said)
    later = word(stopped_at_step=7)
    other = Worker(worker_id="worker-2", generation=3, rank=1)
    assert "stopped after step 7 of 6" in why_not_finished(job, other, later)


def test_a_job_whose_script_stopped_is_complete_with_the_samples_until_there() -> None:
    early = finished_job(end_sample=20)
    early.progress.step = 5
    early.progress.stopped_at_step = 5
    assert why_not_complete(early, having_finished("a" * 64)) == ""
    early.state = JobState.JOB_STATE_SUCCEEDED
    assert "exact: 1 epoch of 25 samples and 20 samples of epoch 2" in show_verdict(early).ledger.verdict
    assert why_trained(early) == "the model is trained; its script ended the loop after step 5 of 6"


async def test_a_job_with_a_gap_in_its_ledger_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """E.g. of a version that entered what was reported as it came."""
    async with Site().serving() as site:
        job_id = await site.submit()
        worker = await site.working()
        await until(lambda: site.job(job_id).progress.step == 2)
        runner = site.room.jobs._running[job_id].runner
        runner.record._job.ledger.stretches[0].first_sample = 10
        finish(worker)
        job = await site.ended(job_id)
        assert job.state == JobState.JOB_STATE_FAILED
        assert "from sample 0 of epoch 1 to sample 10 of epoch 1: 10 samples are missing" in job.state_reason
        assert step(1).samples == 10


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"aborted": WorkerAborted(script_exit=ScriptExit(status=3))}, ""),
        ({"aborted": WorkerAborted(script_exit=ScriptExit(status=-9))}, ""),
        ({"aborted": WorkerAborted(reason="a worker was lost")}, ""),
        ({"aborted": WorkerAborted(script_exit=ScriptExit())}, "it says that a script failed with status 0"),
        ({"aborted": WorkerAborted(script_exit=ScriptExit(status=256))}, "it says that a script failed with"),
        (
            {"aborted": WorkerAborted(script_exit=ScriptExit(status=1, last_lines="x" * 4097))},
            "the last lines",
        ),
        ({"aborted": WorkerAborted(script_files=FILES)}, ""),
        ({"finished": WorkerFinished(script_files=FILES)}, ""),
        (
            {"finished": WorkerFinished(script_files=Checkpoint())},
            "it offers a checkpoint that has no SHA-256",
        ),
        ({"prepared": WorkerPrepared()}, ""),
        ({"prepared": WorkerPrepared(epochs=1)}, "it tells of a training"),
        ({"epoch": EpochProgress(epoch=1)}, "it reports the end of epoch 1"),
        ({"checkpoint": FILES}, ""),
        ({"checkpoint": Checkpoint(step=1, artifact=Artifact(digest="a" * 64))}, "it offers a checkpoint of"),
    ],
)
def test_what_a_worker_of_a_script_can_say(said: Any, reason: str) -> None:
    job = Job(spec=JobSpec(task="train.py", script=Script()), generation=1)
    found = why_not_said(job, WorkerSessionRequest(**said))
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_only_a_script_s_worker_tells_of_a_script_and_it_brings_no_model() -> None:
    exit_ = WorkerSessionRequest(aborted=WorkerAborted(script_exit=ScriptExit(status=3)))
    assert why_not_said(job_at(1), exit_) == "it tells how a script ended, and the job is none"
    files = WorkerSessionRequest(finished=WorkerFinished(script_files=FILES))
    assert why_not_said(job_at(1), files) == "it offers the files of a script, and the job is none"
    job, worker = Job(spec=JobSpec(script=Script()), generation=3), Worker(generation=3)
    assert why_not_finished(job, worker, WorkerFinished(generation=3)) == ""
    assert why_not_finished(job, worker, word(model=Artifact(digest="a" * 64))).startswith(
        "it brings a model"
    )
    assert why_not_finished(job, Worker(generation=2), word()).startswith("it says that it has finished")


@pytest.mark.parametrize(("workers", "shares", "is_right"), [(2, 2, True), (2, 0, True), (2, 3, False)])
def test_a_batch_is_divided_among_the_job_s_workers_only(workers: int, shares: int, is_right: bool) -> None:
    """The list is stored with each step: it mustn't be longer than the truth."""
    job = job_at(0)
    job.workers.extend(Worker(worker_id=f"w{number}") for number in range(workers - len(job.workers)))
    told = StepProgress(step=1, epoch=1, samples=10, generation=3, step_s=1, compute_s=1, samples_per_s=10)
    told.batch_shares.extend([1] * shares)
    reason = why_not_step(job, told)
    assert (reason == "") is is_right, reason


@pytest.mark.parametrize(
    ("known", "logged", "is_right"),
    [
        (["lr"], ["lr", "norm"], True),
        ([], ["n" * 63], True),
        ([], ["n" * 64], False),
        ([], [""], False),
        ([f"m{i}" for i in range(31)], ["m0", "m31"], True),
        ([f"m{i}" for i in range(31)], ["m31", "m32"], False),
    ],
)
def test_a_script_s_worker_logs_few_numbers_by_short_names(
    known: list[str], logged: list[str], is_right: bool
) -> None:
    """The job's record keeps the last of each."""
    job = job_at(0)
    job.progress.metrics.update(dict.fromkeys(known, 1.0))
    told = StepProgress(step=1, epoch=1, samples=10, generation=3, step_s=1, compute_s=1, samples_per_s=10)
    told.metrics.update(dict.fromkeys(logged, 2.0))
    reason = why_not_step(job, told)
    assert reason == "" if is_right else "a job may have 32" in reason
