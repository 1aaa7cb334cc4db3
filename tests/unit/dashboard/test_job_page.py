"""A job as its page shows it: curves in bounds, generations, marks, and who was passed over."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from peerloom import (
    EpochFinished,
    GenerationFormed,
    Job,
    JobSpec,
    ModelStage,
    NodeChoice,
    NotChosen,
    PredictedStep,
    StepCommitted,
    SyncInUse,
    Worker,
    WorkerLost,
)
from peerloom.client.curves import Curves
from peerloom.dashboard.job_page import LOGGED_LIMIT, PART_LIMIT, JobPage
from peerloom.dashboard.listings import jobs_by_node

TIME = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
JOB = Job(
    id="job-1",
    spec=JobSpec("digits"),
    state="running",
    reason="",
    answers=(),
    workers=(),
    generation=1,
    backend="gloo",
    progress=None,
    result=None,
    submit_time=TIME,
    first_step_time=None,
    end_time=None,
)


def worker(name: str, node: str, *, ended: bool = False) -> Worker:
    return Worker(name, f"node-{node}", node, 0, ended, "")


def formed(generation: int, first_step: int, *workers: Worker) -> GenerationFormed:
    return GenerationFormed(generation, "job-1", TIME, generation, workers, "gloo", first_step)


def step(number: int, loss: float = 1.0, **more: Any) -> StepCommitted:
    return StepCommitted(
        number, "job-1", TIME, number, 100, 1, loss, 32, 64.0, 0.5, 0.002, 0.25, 1000, **more
    )


def test_the_curves_show_each_step_and_its_two_parts_in_milliseconds() -> None:
    page = JobPage()
    page.apply(step(1, 2.0))
    page.apply(step(2, 1.5))
    shown = page.page()
    assert shown["steps"] == {
        "step": [1, 2],
        "loss": [2.0, 1.5],
        "samples_per_s": [64.0, 64.0],
        "compute_ms": [2.0, 2.0],
        "communication_ms": [250.0, 250.0],
        "kilobytes": [1.0, 1.0],
    }
    assert shown["stride"] == 1


def test_a_long_curve_becomes_means_of_neighbours() -> None:
    curves = Curves(("loss",), limit=4)
    for number in range(1, 9):
        curves.add(number, {"loss": float(number)})
    # After the 5th: means of (1, 2), (3, 4), and 5 alone; from there on two steps a point: (6, 7), and 8.
    assert curves.columns() == {"step": [2, 4, 5, 7, 8], "loss": [1.5, 3.5, 5.0, 6.5, 8.0]}
    assert (curves.stride, curves.last_step) == (2, 8)


def test_steps_that_are_made_again_replace_those_that_were_lost() -> None:
    curves = Curves(("loss",))
    for number, loss in ((1, 3.0), (2, 2.0), (3, 1.0), (2, 2.5)):
        curves.add(number, {"loss": loss})
    assert curves.columns() == {"step": [1, 2], "loss": [3.0, 2.5]}


def test_each_worker_s_share_is_told_where_it_changed() -> None:
    page = JobPage()
    page.apply(formed(1, 1, worker("w1", "anna"), worker("w2", "berta")))
    page.apply(step(1, batch_shares=(1, 1)))
    page.apply(step(2))
    page.apply(step(3, batch_shares=(3, 1)))
    assert page.page()["divisions"] == [
        {"step": 1, "parts": {"w1": 0.5, "w2": 0.5}},
        {"step": 3, "parts": {"w1": 0.75, "w2": 0.25}},
    ]
    assert page.page()["homes"] == {"w1": "anna", "w2": "berta"}


def test_of_many_workers_only_the_newest_divisions_are_kept() -> None:
    page, workers = JobPage(), [worker(f"w{number}", "anna") for number in range(PART_LIMIT // 4)]
    page.apply(formed(1, 1, *workers))
    for number in range(1, 8):
        page.apply(step(number, batch_shares=(number,) * len(workers)))
    shown = page.page()
    assert [one["step"] for one in shown["divisions"]] == [4, 5, 6, 7]
    assert len(shown["homes"]) == len(workers)


def test_bytes_are_summed_by_the_method_that_sent_them() -> None:
    page = JobPage()
    page.apply(replace(formed(1, 1, worker("w1", "anna")), sync="codec=none"))
    page.apply(step(1))
    page.apply(replace(formed(2, 2, worker("w1", "anna")), sync="codec=int8"))
    page.apply(step(2))
    page.apply(step(3))
    assert page.page()["traffic"] == [
        {"method": "codec=none", "steps": 1, "bytes": 1000},
        {"method": "codec=int8", "steps": 2, "bytes": 2000},
    ]


def test_what_a_script_logs_becomes_curves_over_the_steps_that_have_it() -> None:
    page = JobPage()
    page.apply(step(1))
    page.apply(step(2, metrics={"norm": 4.0}))
    page.apply(step(3, metrics={f"more-{number}": 0.0 for number in range(LOGGED_LIMIT)}))
    logged = page.page()["logged"]
    assert logged["norm"] == {"step": [2], "norm": [4.0]}
    assert len(logged) == LOGGED_LIMIT


def test_what_auto_chose_is_told_in_milliseconds_and_a_stage_in_words() -> None:
    stage = ModelStage(1, 2, 4, "conv", "linear", 650)
    sync = SyncInUse("codec=int8", "why", PredictedStep(0.1, 0.05, 0.05, 0), 0.2, 0.1, 0.1, None, None, 2)
    page = JobPage()
    page.refresh(replace(JOB, sync=sync, workers=(replace(worker("w1", "anna"), stage=stage),)))
    shown = page.page()
    assert shown["sync"] == {
        "method": "codec=int8",
        "reason": "why",
        "runner_up_method": None,
        "changes": 2,
        "predicted_ms": 100.0,
        "measured_ms": 200.0,
        "runner_up_ms": None,
    }
    assert shown["workers"][0]["holds"] == "layers conv to linear, 650 parameters"


def test_losses_and_joins_are_marks_at_their_steps() -> None:
    page = JobPage()
    anna, berta, carl = worker("w1", "anna"), worker("w2", "berta"), worker("w3", "carl")
    page.apply(formed(1, 1, anna, berta))
    page.apply(step(7))
    page.apply(WorkerLost(3, "job-1", TIME, berta, "it was killed"))
    page.apply(formed(2, 8, anna))
    page.apply(step(8))
    page.apply(formed(3, 9, anna, carl))
    shown = page.page()
    assert shown["marks"] == [
        {"kind": "lost", "node": "berta", "text": "it was killed", "step": 7},
        {"kind": "joined", "node": "carl", "text": "1 of its workers joined generation 3", "step": 9},
    ]
    assert [(one["first_step"], one["workers"]) for one in shown["generations"]] == [(1, 2), (8, 1), (9, 2)]


def test_an_epoch_stands_at_the_step_that_ended_it_and_replaces_its_first_try() -> None:
    page = JobPage()
    page.apply(step(45))
    page.apply(EpochFinished(2, "job-1", TIME, 1, "accuracy", 0.5, 1.0, 360))
    page.apply(EpochFinished(3, "job-1", TIME, 1, "accuracy", 0.75, 0.5, 360))
    assert [(one["epoch"], one["step"], one["metric"]) for one in page.page()["epochs"]] == [(1, 45, 0.75)]


def test_a_page_without_a_snapshot_claims_no_state() -> None:
    page = JobPage()
    assert "state" not in page.page()
    page.refresh(JOB)
    assert (page.page()["state"], page.page()["ledger"]) == ("running", None)


def test_a_job_works_on_the_nodes_of_the_workers_that_are_left() -> None:
    job = replace(
        JOB, workers=(worker("w1", "anna"), worker("w2", "berta", ended=True), worker("w3", "anna"))
    )
    assert jobs_by_node([job]) == {"node-anna": ["job-1"]}
    assert jobs_by_node([replace(job, state="failed")]) == {}


def test_the_page_says_who_was_passed_over_and_why() -> None:
    left = (NotChosen("others ranked higher", 4, ("anna", "berta")), NotChosen("draining", 1, ("cyd",)))
    page = JobPage()
    page.refresh(replace(JOB, choice=NodeChoice("thesis", 3, 3, 7, left)))
    found = page.page()
    assert found["choice"] == "3 of 7 candidates by thesis"
    assert [(one["count"], one["reason"], one["examples"]) for one in found["passed_over"]] == [
        (4, "others ranked higher", ("anna", "berta")),
        (1, "draining", ("cyd",)),
    ]
