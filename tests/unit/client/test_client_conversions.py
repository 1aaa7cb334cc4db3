"""Messages as values: words for enums, aware times, None where the wire has nothing."""

from datetime import UTC, datetime
from typing import Any

import pytest

from peerloom.client.conversions.beliefs import belief_of
from peerloom.client.conversions.events import event_of
from peerloom.client.conversions.jobs import job_of, model_of
from peerloom.client.conversions.nodes import node_of, session_of
from peerloom.client.conversions.services import endpoints_of
from peerloom.client.types import (
    Accusation,
    AuditReport,
    AuditsOff,
    Dismissal,
    EpochFinished,
    GenerationFormed,
    GradientsRefused,
    JobEvent,
    LiarDismissed,
    NodeAccused,
    NodeAnswered,
    PredictedStep,
    StateChanged,
    StepCommitted,
    SyncChanged,
    WorkerLost,
)
from peerloom.kit.clock import to_timestamp
from peerloom.v1 import artifact_pb2, common_pb2, registry_pb2, selector_pb2, trainer_pb2

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
NOON_STAMP = to_timestamp(NOON.timestamp())
ACCUSATION = trainer_pb2.Accusation(
    worker_id="worker-2", owner="eve", node_id="node-1", node_name="anna", step=4, difference=2.0
)
DISMISSED = trainer_pb2.LiarDismissed(
    node_id="node-1", node_name="anna", reason="2 of 3 owners", accusations=[ACCUSATION]
)
WORKER = trainer_pb2.Worker(worker_id="worker-1", node_id="node-1", node_name="anna", rank=2)


def test_a_bare_node_has_none_where_nothing_is_known() -> None:
    node = node_of(registry_pb2.Node(node_id="node-1"))
    assert (node.state, node.free_slots, node.speed, node.online_s) == ("unknown", None, None, None)
    assert (node.registered_time, node.last_seen_time, node.labels) == (None, None, {})


def test_a_full_node_keeps_all() -> None:
    node = node_of(
        registry_pb2.Node(
            node_id="node-1",
            spec=registry_pb2.NodeSpec(
                name="anna",
                address="10.0.0.1:7410",
                slots=3,
                accelerators=[common_pb2.Accelerator(kind="cuda", model="M", count=3, memory_bytes=7)],
                speed=common_pb2.MachineSpeed(matmul_gflops=1, memory_bytes_per_s=2, disk_bytes_per_s=3),
                labels={"room": "7"},
            ),
            state=registry_pb2.NODE_STATE_ALIVE,
            state_reason="it beats",
            incarnation=4,
            draining=True,
            slots=common_pb2.SlotCount(total=3, free=0),
            registered_time=NOON_STAMP,
            last_seen_time=NOON_STAMP,
            online_s=1.5,
        )
    )
    assert (node.name, node.state, node.slots, node.free_slots) == ("anna", "alive", 3, 0)
    assert node.accelerators[0].count == 3
    assert node.speed is not None
    assert node.speed.disk_bytes_per_s == 3
    assert (node.labels, node.registered_time, node.online_s) == ({"room": "7"}, NOON, 1.5)
    assert str(node) == "anna (alive, draining, 3 slots, 0 free) at 10.0.0.1:7410"


def test_an_open_session_has_no_end() -> None:
    session = session_of(registry_pb2.Session(node_name="anna", start_time=NOON_STAMP, online_s=2))
    assert (session.start_time, session.end_time, session.interrupted) == (NOON, None, False)
    assert str(session) == "anna: 2.0 s, open"


def test_a_belief_before_any_evidence_has_no_terms() -> None:
    belief = belief_of(selector_pb2.Belief(node_id="node-1", name="anna"))
    assert (belief.belief, belief.terms, belief.update_time, belief.evidence) == (0.0, None, None, None)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (selector_pb2.EVIDENCE_KIND_TRANSFER, ("transfer", 1.0, None, 3)),
        (selector_pb2.EVIDENCE_KIND_TRAINING, ("training", None, None, None)),
        (selector_pb2.EVIDENCE_KIND_UNFINISHED, ("unfinished", None, None, None)),
        (selector_pb2.EVIDENCE_KIND_SESSION_ENDED, ("session_ended", None, 2.0, None)),
        (selector_pb2.EVIDENCE_KIND_INTERRUPTION, ("interruption", None, 2.0, None)),
        (selector_pb2.EVIDENCE_KIND_LIE, ("lie", None, None, None)),
        (selector_pb2.EVIDENCE_KIND_WRONG_ANSWER, ("wrong_answer", None, None, None)),
    ],
)
def test_evidence_shows_only_what_its_kind_means(kind: Any, expected: tuple[object, ...]) -> None:
    fact = selector_pb2.Evidence(kind=kind, delay_s=1, online_s=2, transfer_bytes=3)
    evidence = belief_of(selector_pb2.Belief(evidence=fact)).evidence
    assert evidence is not None
    assert (evidence.kind, evidence.delay_s, evidence.online_s, evidence.transfer_bytes) == expected


def test_the_terms_of_a_belief_are_written_out_in_figures() -> None:
    # By hand: 0.3*1 + 0.1*2 + 0.5*1 - 1*0.5 = 0.5; min(10, 2 + ln(1)) = 2; 1 + 0 - 2 = -1; 0.5 + 2 + 1 = 3.5.
    terms = selector_pb2.BeliefTerms(
        score_old=1,
        transmissions=2,
        trainings=1,
        delay_s=0.5,
        ended_online_log=2,
        interruptions=1,
        score_new=0.5,
        time_score=2,
        score_reduce=-1,
        weights=selector_pb2.BeliefWeights(
            score_old=0.3, transmission=0.1, train=0.5, delay=1, time_score_cap=10
        ),
    )
    assert str(belief_of(selector_pb2.Belief(terms=terms)).terms).splitlines() == [
        "score_new = 0.3*1 + 0.1*2 + 0.5*1 - 1*0.5 = 0.5",
        "time_score = min(10, 2 + ln(0 + 1)) = 2",
        "score_reduce = 1 + 0 - 2 = -1",
        "belief = 0.5 + 2 - -1 = 3.5",
    ]


def test_a_fresh_job_has_neither_progress_nor_result() -> None:
    job = job_of(trainer_pb2.Job(job_id="job-1", state=trainer_pb2.JOB_STATE_QUEUED))
    assert (job.state, job.ended, job.progress, job.result, job.backend) == (
        "queued",
        False,
        None,
        None,
        None,
    )
    assert (job.spec.epochs, job.spec.learning_rate, job.spec.backend) == (None, None, "auto")


def test_progress_before_the_first_step_has_no_loss() -> None:
    progress = job_of(trainer_pb2.Job(progress=trainer_pb2.JobProgress(total_steps=9))).progress
    assert progress is not None
    assert (progress.step, progress.total_steps, progress.loss, progress.metric) == (0, 9, None, None)


def test_a_job_that_ended_badly_has_a_result_without_a_model() -> None:
    job = job_of(trainer_pb2.Job(state=trainer_pb2.JOB_STATE_NO_COMPUTE, state_reason="all refused"))
    assert job.result is not None
    assert (job.result.state, job.result.reason, job.result.succeeded) == ("no_compute", "all refused", False)
    assert (job.result.model, job.result.training_s, job.result.metric) == (None, None, None)


def test_a_job_s_ledger_says_what_its_steps_used() -> None:
    stretch = trainer_pb2.LedgerStretch(
        generation=1, last_generation=1, first_step=1, last_step=3, end_sample=9
    )
    ledger = trainer_pb2.Ledger(training_samples=9, is_exact=True, verdict="exact", stretches=[stretch])
    found = job_of(trainer_pb2.Job(ledger=ledger)).ledger
    assert found is not None
    assert (found.is_exact, found.training_samples, found.stretches[0].end_sample) == (True, 9, 9)
    assert job_of(trainer_pb2.Job()).ledger is None


def test_a_finished_job_has_all_of_its_result() -> None:
    job = job_of(
        trainer_pb2.Job(
            job_id="job-1",
            state=trainer_pb2.JOB_STATE_SUCCEEDED,
            progress=trainer_pb2.JobProgress(step=5, metric=0.97, metric_name="accuracy"),
            result=trainer_pb2.JobResult(
                model=artifact_pb2.Artifact(digest="ab" * 32, size_bytes=10),
                model_path="/m",
                model_nodes=["anna"],
                samples=320,
                samples_per_s=1234.4,
            ),
        )
    )
    result = job.result
    assert result is not None
    assert result.model is not None
    assert (result.model.digest, result.model.size_bytes) == ("ab" * 32, 10)
    assert (result.model_path, result.model_nodes, result.samples) == ("/m", ("anna",), 320)
    assert str(result) == "job-1 succeeded, accuracy 0.9700, 1,234 samples/s"


def test_a_model_without_a_metric_says_none() -> None:
    model = model_of(trainer_pb2.Model(artifact=artifact_pb2.Artifact(digest="ab" * 32), job_id="job-1"))
    assert (model.metric, model.metric_name, model.create_time) == (None, None, None)


@pytest.mark.parametrize(
    ("event", "kind", "shown"),
    [
        (
            {"state_change": trainer_pb2.StateChange(state=trainer_pb2.JOB_STATE_RUNNING, reason="go")},
            StateChanged,
            "running: go",
        ),
        (
            {
                "answer": trainer_pb2.NodeAnswer(
                    node=selector_pb2.RankedNode(name="anna", belief=0.5), accepted_slots=2, reason="idle"
                )
            },
            NodeAnswered,
            "anna (belief 0.5000) gave 2 slots: idle",
        ),
        (
            {
                "generation_formed": trainer_pb2.GenerationFormed(
                    generation=1, workers=[WORKER], backend=trainer_pb2.BACKEND_GLOO, sync="bsp"
                )
            },
            GenerationFormed,
            "generation 1: 1 worker (anna), gloo",
        ),
        (
            {"step": trainer_pb2.StepProgress(step=3, total_steps=9, loss=0.25, samples_per_s=1000)},
            StepCommitted,
            "step 3 of 9: loss 0.2500, 1,000 samples/s",
        ),
        (
            {"epoch": trainer_pb2.EpochProgress(epoch=1, metric_name="accuracy", metric=0.5, loss=1)},
            EpochFinished,
            "epoch 1: accuracy 0.5000, loss 1.0000",
        ),
        (
            {"worker_lost": trainer_pb2.WorkerLost(worker=WORKER, reason="killed")},
            WorkerLost,
            "lost worker-1 on anna: killed",
        ),
        (
            {"accusation": ACCUSATION},
            NodeAccused,
            "eve says that anna lied in step 4: 2 apart from what its share gives",
        ),
        (
            {"liar_dismissed": DISMISSED},
            LiarDismissed,
            "dismissed anna, which lied: 2 of 3 owners",
        ),
        (
            {"audits_off": trainer_pb2.AuditsOff(node_name="anna", reason="noise")},
            AuditsOff,
            "anna makes no audits: noise",
        ),
        (
            {"gradients_refused": trainer_pb2.GradientsRefused(step=3, node_name="anna")},
            GradientsRefused,
            "left out what anna sent in step 3: it isn't finite",
        ),
        (
            {"sync_changed": trainer_pb2.SyncChanged(generation=2, method="b", former="a", reason="faster")},
            SyncChanged,
            "changes to b: faster",
        ),
    ],
)
def test_each_event_has_its_class(event: dict[str, Any], kind: type[JobEvent], shown: str) -> None:
    value = event_of(trainer_pb2.WatchJobResponse(sequence=7, job_id="job-1", time=NOON_STAMP, **event))
    assert type(value) is kind
    assert (value.sequence, value.job_id, value.time) == (7, "job-1", NOON)
    assert str(value) == shown


def test_a_job_tells_what_its_trainer_chose() -> None:
    predicted = trainer_pb2.SyncPrediction(step_s=0.4, compute_s=0.3, exposed_s=0.08, compression_s=0.02)
    chosen = trainer_pb2.JobSync(
        method="b", reason="it is best", predicted=predicted, measured_step_s=0.5, runner_up="a", changes=1
    )
    found = job_of(trainer_pb2.Job(sync_in_use=chosen)).sync
    assert found is not None
    assert (str(found), found.changes, found.runner_up) == ("b: it is best", 1, "a")
    assert found.predicted == PredictedStep(0.4, 0.3, 0.08, 0.02)
    assert (found.measured_step_s, found.measured_compute_s) == (0.5, 0.0)
    early = job_of(trainer_pb2.Job(sync_in_use=trainer_pb2.JobSync(method="a"))).sync
    assert early is not None
    assert (early.predicted, early.measured_step_s, early.measured_compute_s, early.runner_up) == (None,) * 4
    assert job_of(trainer_pb2.Job()).sync is None


def test_a_job_tells_what_came_of_its_audits() -> None:
    off = trainer_pb2.AuditsOff(reason="all differ")
    audits = trainer_pb2.JobAudits(made=9, accusations=[ACCUSATION], dismissals=[DISMISSED], off=[off])
    report = job_of(trainer_pb2.Job(audits=audits)).audits
    accusation = Accusation("worker-2", "eve", "node-1", "anna", 4, 2.0)
    dismissal = Dismissal("node-1", "anna", "2 of 3 owners", (accusation,))
    assert report == AuditReport(9, (accusation,), (dismissal,), ("the job: all differ",))
    assert job_of(trainer_pb2.Job()).audits is None


def test_every_event_of_the_schema_is_known() -> None:
    oneof = trainer_pb2.WatchJobResponse.DESCRIPTOR.oneofs_by_name["event"]
    for field in oneof.fields:
        message = trainer_pb2.WatchJobResponse(sequence=1)
        getattr(message, field.name).SetInParent()
        assert event_of(message) is not None, field.name


def test_an_event_newer_than_we_are_is_none() -> None:
    assert event_of(trainer_pb2.WatchJobResponse(sequence=1)) is None


@pytest.mark.parametrize(("state", "final"), [(s, s >= 7) for s in trainer_pb2.JobState.values() if s])
def test_final_states_are_those_of_the_schema(state: Any, final: bool) -> None:
    message = trainer_pb2.WatchJobResponse(sequence=1, state_change=trainer_pb2.StateChange(state=state))
    event = event_of(message)
    assert isinstance(event, StateChanged)
    assert event.is_final is final


def test_the_registry_comes_first_and_unknown_services_are_left_out() -> None:
    answer = registry_pb2.ListServicesResponse()
    for kind in (registry_pb2.SERVICE_KIND_TRAINER, registry_pb2.SERVICE_KIND_SELECTOR, 0):
        answer.services.add(kind=kind, address="10.0.0.1:1")
    found = endpoints_of("10.0.0.1:7400", answer)
    assert [each.name for each in found] == ["registry", "selector", "trainer"]
    assert found[0].address == "10.0.0.1:7400"
