"""A job's record: each verb changes it and appends its event in one step."""

from collections.abc import Callable

import pytest
from trainer_room import Room, prepared_for, ranked, worker

from peerloom.kit.sync_method import SyncMethod
from peerloom.services.trainer.generations.sync_decisions import SyncVerdict
from peerloom.services.trainer.jobs.record import JobRecord
from peerloom.services.trainer.jobs.sample_ledger import judge
from peerloom.services.trainer.jobs.sync_entries import JudgedSync
from peerloom.v1.artifact_pb2 import Artifact
from peerloom.v1.selector_pb2 import Evidence
from peerloom.v1.trainer_pb2 import (
    Accusation,
    Backend,
    Checkpoint,
    EpochProgress,
    Evaluation,
    EvaluationVerdict,
    Job,
    JobResult,
    JobState,
    ModelStage,
    NetworkTraffic,
    NodeAnswer,
    NodeChoice,
    ScriptRun,
    StageShadow,
    StepProgress,
    WatchJobResponse,
)

READING = {"job", "job_id", "generation", "nodes", "worker", "living_nodes", "take_change"}


def checkpoint(step: int, epoch: int = 0) -> Checkpoint:
    return Checkpoint(step=step, epoch=epoch, artifact=Artifact(digest=f"{step:064x}"))


def step(number: int, samples_per_s: float = 100.0, generation: int = 1) -> StepProgress:
    """A step of 10 of the first epoch's 100 samples."""
    return StepProgress(
        step=number,
        epoch=1,
        samples=10,
        first_sample=10 * (number - 1),
        samples_per_s=samples_per_s,
        step_s=0.5,
        generation=generation,
        workers=2,
        loss=1.0 / number,
    )


@pytest.fixture
def record() -> JobRecord:
    """A job with two workers in its first generation, five steps and two checkpoints."""
    record = Room().new_record(batch_size=10)
    record.answered(NodeAnswer(node=ranked("ada"), accepted_slots=2))
    record.workers_added([worker(1), worker(2)])
    record.task_loaded(prepared_for(record.job.spec, samples=100))
    record.generation_begun(["worker-2", "worker-1"], 0, "2 workers begin", False)
    for number in range(1, 6):
        record.step_committed(step(number))
    record.checkpoint_kept(checkpoint(2))
    record.checkpoint_kept(checkpoint(4))
    record.take_change()
    return record


Verb = Callable[[JobRecord], object]
Read = Callable[[Job], object]
VERBS: dict[str, tuple[Verb, str | None, Read, object]] = {
    "round_begun": (
        lambda r: r.round_begun("asking"),
        "state_change",
        lambda j: (j.state, len(j.answers), len(j.workers)),
        (JobState.JOB_STATE_SELECTING, 0, 0),
    ),
    "loop_stopped": (
        lambda r: r.loop_stopped(5),
        None,
        lambda j: (j.progress.stopped_at_step, j.progress.total_steps),
        (5, 5),
    ),
    "nodes_chosen": (
        lambda r: r.nodes_chosen(NodeChoice(policy="thesis", candidates=5)),
        None,
        lambda j: (j.choice.policy, j.choice.candidates),
        ("thesis", 5),
    ),
    "answered": (
        lambda r: r.answered(NodeAnswer(node=ranked("bob"), accepted_slots=1)),
        "answer",
        lambda j: [answer.node.name for answer in j.answers],
        ["ada", "bob"],
    ),
    "slots_found": (
        lambda r: r.slots_found(Backend.BACKEND_GLOO, "2 slots, with gloo"),
        "state_change",
        lambda j: (j.state, j.backend, j.state_reason),
        (JobState.JOB_STATE_STARTING, Backend.BACKEND_GLOO, "2 slots, with gloo"),
    ),
    "workers_admitted": (lambda r: r.workers_admitted({"worker-3": "3" * 64}), None, lambda j: None, None),
    "workers_added": (
        lambda r: r.workers_added([worker(3)]),
        None,
        lambda j: [each.worker_id for each in j.workers],
        ["worker-1", "worker-2", "worker-3"],
    ),
    "evidence_given": (lambda r: r.evidence_given(Evidence(evidence_id="e")), None, lambda j: None, None),
    "task_loaded": (
        lambda r: r.task_loaded(prepared_for(r.job.spec, samples=300)),
        None,
        lambda j: (j.progress.total_steps, j.progress.total_epochs, j.ledger.training_samples),
        (30, 1, 300),
    ),
    "stage_entered": (
        lambda r: r.stage_entered("worker-1", ModelStage(number=1, first_layer=3, end_layer=8)),
        None,
        lambda j: [(each.stage.number, each.stage.end_layer) for each in j.workers],
        [(1, 8), (0, 0)],
    ),
    "shadow_told": (
        lambda r: r.shadow_told("worker-1", StageShadow(stage=1, step=7)),
        None,
        lambda j: [(each.shadow.stage, each.shadow.step) for each in j.workers],
        [(1, 7), (0, 0)],
    ),
    "worker_lost": (
        lambda r: r.worker_lost("worker-1", "it died"),
        "worker_lost",
        lambda j: [(each.ended, each.end_reason) for each in j.workers],
        [(True, "it died"), (False, "")],
    ),
    "worker_dismissed": (
        lambda r: r.worker_dismissed("worker-2", "its owner is back"),
        None,
        lambda j: [(each.ended, each.end_reason) for each in j.workers],
        [(False, ""), (True, "its owner is back")],
    ),
    "audit_entered": (
        lambda r: r.audit_entered(WatchJobResponse(accusation=Accusation(owner="ada", node_id="node-bob"))),
        "accusation",
        lambda j: [(each.owner, each.node_id) for each in j.audits.accusations],
        [("ada", "node-bob")],
    ),
    "audits_made": (
        lambda r: r.audits_made("worker-1", 3),
        None,
        lambda j: (j.audits.made, j.workers[0].audits),
        (3, 3),
    ),
    "generation_begun": (
        lambda r: r.generation_begun(["worker-1"], 5, "1 worker goes on", False),
        "generation_formed",
        lambda j: (j.generation, [(each.rank, each.generation) for each in j.workers]),
        (2, [(0, 2), (0, 1)]),
    ),
    "generation_entered": (
        lambda r: r.generation_entered(["worker-1"], 7),
        "generation_formed",
        lambda j: j.generation,
        1,
    ),
    "step_committed": (
        lambda r: r.step_committed(step(6, 200.0)),
        "step",
        # Five steps at 100 a second, then one at 200: 0.9 * 100 + 0.1 * 200 = 110.
        lambda j: (j.progress.step, round(j.progress.samples_per_s, 6), j.ledger.stretches[0].end_sample),
        (6, 110.0, 60),
    ),
    "epoch_committed": (
        lambda r: r.epoch_committed(EpochProgress(epoch=1, metric_name="accuracy", metric=0.9)),
        "epoch",
        lambda j: (j.progress.epoch, j.progress.metric_name, j.progress.metric),
        (1, "accuracy", 0.9),
    ),
    "checkpoint_kept": (
        lambda r: r.checkpoint_kept(checkpoint(5)),
        None,
        lambda j: (j.checkpoint.step, j.previous_checkpoint.step),
        (5, 4),
    ),
    "checkpoint_refused": (
        lambda r: r.checkpoint_refused("it is damaged"),
        "state_change",
        lambda j: (j.checkpoint.step, j.HasField("previous_checkpoint"), j.state_reason),
        (2, False, "it is damaged; going on from the one of step 2"),
    ),
    "script_ran": (
        lambda r: r.script_ran(ScriptRun(failures=1, generation=2)),
        None,
        lambda j: (j.script_run.failures, j.script_run.generation),
        (1, 2),
    ),
    "model_evaluated": (
        lambda r: r.model_evaluated(Evaluation(verdict=EvaluationVerdict.EVALUATION_VERDICT_AGREES)),
        "evaluation",
        lambda j: j.evaluation.verdict,
        EvaluationVerdict.EVALUATION_VERDICT_AGREES,
    ),
    "result_kept": (
        lambda r: r.result_kept(JobResult(model=Artifact(digest="a" * 64))),
        None,
        lambda j: j.result.model.digest,
        "a" * 64,
    ),
    "node_moved": (
        lambda r: r.node_moved("node-ada", "10.0.0.9:1"),
        None,
        lambda j: [each.node.address for each in j.answers],
        ["10.0.0.9:1"],
    ),
    "sync_judged": (
        lambda r: r.sync_judged(
            JudgedSync(SyncVerdict(SyncMethod(), "it is best"), None, {SyncMethod("bsp"): 0.5})
        ),
        None,
        lambda j: (j.sync_in_use.reason, j.sync_in_use.tried[0].step_s),
        ("it is best", 0.5),
    ),
    "plan_measured": (
        lambda r: r.plan_measured(0.25),
        None,
        lambda j: j.plan_in_use.measured_step_s,
        0.25,
    ),
    "traffic_recorded": (
        lambda r: r.traffic_recorded(NetworkTraffic(backend="ns3")),
        None,
        lambda j: j.traffic.backend,
        "ns3",
    ),
    "state_changed": (
        lambda r: r.state_changed(JobState.JOB_STATE_RUNNING, "it runs"),
        "state_change",
        lambda j: (j.state, j.state_reason),
        (JobState.JOB_STATE_RUNNING, "it runs"),
    ),
    "end_decided": (
        lambda r: r.end_decided(JobState.JOB_STATE_CANCELLED, "its user cancelled it"),
        "state_change",
        lambda j: (j.state, j.ending_state, j.state_reason),
        (
            JobState.JOB_STATE_FINISHING,
            JobState.JOB_STATE_CANCELLED,
            "freeing the slots: its user cancelled it",
        ),
    ),
    "ended": (
        lambda r: r.ended(JobState.JOB_STATE_FAILED, "it broke"),
        "state_change",
        lambda j: (j.state, j.HasField("end_time"), [each.ended for each in j.workers]),
        (JobState.JOB_STATE_FAILED, True, [True, True]),
    ),
    "resumed": (
        lambda r: r.resumed(),
        "state_change",
        lambda j: (j.state, j.HasField("end_time"), j.state_reason),
        (JobState.JOB_STATE_QUEUED, False, "resumed from its checkpoint"),
    ),
}


def test_a_choice_like_the_one_before_is_passed_over(record: JobRecord) -> None:
    for candidates, is_news in ((5, True), (5, False), (4, True)):
        record.take_change()
        record.nodes_chosen(NodeChoice(policy="thesis", candidates=candidates))
        assert (record.take_change() is not None) == is_news


def test_all_that_a_record_can_be_told_is_tested_here() -> None:
    assert {name for name in dir(JobRecord) if not name.startswith("_")} == READING | set(VERBS)


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_changes_the_record_and_appends_its_event_in_one_step(record: JobRecord, name: str) -> None:
    verb, kind, read, expected = VERBS[name]
    verb(record)
    assert read(record.job) == expected
    change = record.take_change()
    assert change is not None, "without an event, the change itself is to be written"
    assert [event.WhichOneof("event") for event in change.events] == ([kind] if kind else [])
    assert read(change.job) == expected
    assert record.take_change() is None


def test_what_is_reported_again_enters_once(record: JobRecord) -> None:
    """As by a worker whose session broke before the trainer had said that it is stored."""
    record.epoch_committed(EpochProgress(epoch=1))
    record.take_change()
    record.step_committed(step(5))
    record.step_committed(step(3))
    record.epoch_committed(EpochProgress(epoch=1))
    assert record.take_change() is None
    assert record.job.progress.step == 5


def test_what_came_after_the_checkpoint_of_a_generation_is_done_again(record: JobRecord) -> None:
    """Five steps of ten samples were made; from the checkpoint of step 4 on the fifth is lost."""
    record.generation_begun(["worker-1"], 4, "from the checkpoint", False)
    job = record.job
    assert (job.progress.step, job.ledger.discarded_samples) == (4, 10)
    assert job.ledger.stretches[-1].end_sample == 40


def test_what_only_a_silent_worker_had_is_done_again(record: JobRecord) -> None:
    """Five steps of ten samples were told; the one that goes on has made three of them."""
    record.generation_begun(["worker-1"], 3, "1 worker goes on", False)
    job = record.job
    assert (job.progress.step, job.ledger.discarded_samples) == (3, 20)
    for number in range(4, 11):
        record.step_committed(step(number, generation=2))
    job = record.job
    assert [(s.generation, s.first_step, s.last_step, s.end_sample) for s in job.ledger.stretches] == [
        (1, 1, 3, 30),
        (2, 4, 10, 100),
    ]
    assert judge(job.ledger, epochs=1) == (True, "exact: 1 epoch of 100 samples, each used once")
    change = record.take_change()
    assert change is not None
    told = [event.step.step for event in change.events if event.HasField("step")]
    assert told == [4, 5, 6, 7, 8, 9, 10]


def test_an_epoch_is_not_over_before_its_last_step_was_made_again(record: JobRecord) -> None:
    for number in range(6, 11):
        record.step_committed(step(number))
    record.epoch_committed(EpochProgress(epoch=1))
    record.generation_begun(["worker-1"], 10, "1 worker goes on", False)
    assert (record.job.progress.epoch, record.job.ledger.discarded_samples) == (1, 0)
    record.generation_begun(["worker-1"], 9, "1 worker goes on", False)
    assert (record.job.progress.epoch, record.job.ledger.discarded_samples) == (0, 10)


def test_nothing_is_lost_while_a_generation_meets_beside_the_training(record: JobRecord) -> None:
    """What its members told of themselves is a little older than what was told of the steps."""
    record.generation_begun(["worker-1", "worker-3"], 4, "a worker joins", True)
    assert (record.job.progress.step, record.job.ledger.discarded_samples) == (5, 0)


def test_a_checkpoint_of_lost_steps_is_passed_over(record: JobRecord) -> None:
    """It was copied while the job fell back: its steps would be missing in the ledger if one began there."""
    record.generation_begun(["worker-1"], 4, "from the checkpoint", False)
    record.take_change()
    record.checkpoint_kept(checkpoint(5))
    assert record.job.checkpoint.step == 4
    assert record.take_change() is None


def test_a_generation_that_meets_beside_is_told_of_when_it_is_entered(record: JobRecord) -> None:
    record.state_changed(JobState.JOB_STATE_RUNNING, "2 workers work")
    record.workers_added([worker(3)])
    record.take_change()
    record.generation_begun(["worker-1", "worker-3"], 5, "a worker joins", True)
    record.generation_entered(["worker-3", "worker-1"], 7)
    change = record.take_change()
    assert change is not None
    met, entered = change.events
    assert (met.state_change.state, met.state_change.reason) == (JobState.JOB_STATE_RUNNING, "a worker joins")
    formed = entered.generation_formed
    assert [each.worker_id for each in formed.workers] == ["worker-1", "worker-3"], (
        "in the order of the ranks"
    )
    assert (formed.generation, formed.first_step, formed.sync) == (2, 7, record.job.spec.sync)


def test_a_copy_of_the_record_stays_as_it_was(record: JobRecord) -> None:
    before = record.job
    record.step_committed(step(6))
    assert (before.progress.step, record.job.progress.step) == (5, 6)
    assert record.job is record.job, "no copy is made while nothing changes"


def test_a_stopped_loop_ends_the_job_there_unless_a_later_generation_goes_on(record: JobRecord) -> None:
    planned = record.job.progress.total_steps
    record.loop_stopped(5)
    assert (record.job.progress.stopped_at_step, record.job.progress.total_steps) == (5, 5)
    record.generation_begun([worker(1).worker_id], 5, "a worker was lost", beside=False)
    assert (record.job.progress.stopped_at_step, record.job.progress.total_steps) == (0, planned)
