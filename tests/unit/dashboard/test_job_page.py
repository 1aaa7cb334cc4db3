"""A job as its page shows it: curves in bounds, generations, marks, and who was passed over."""

from dataclasses import replace
from datetime import UTC, datetime

from peerloom import (
    EpochFinished,
    GenerationFormed,
    Job,
    JobSpec,
    NodeChoice,
    NotChosen,
    StepCommitted,
    Worker,
    WorkerLost,
)
from peerloom.client.curves import Curves
from peerloom.dashboard.job_page import JobPage
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


def step(number: int, loss: float = 1.0) -> StepCommitted:
    return StepCommitted(number, "job-1", TIME, number, 100, 1, loss, 32, 64.0, 0.5, 0.002, 0.25, 1000)


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
