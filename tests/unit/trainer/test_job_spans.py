"""What the events of a job say as spans: when they begin and end, and below whom they stand."""

from collections.abc import Iterable

import pytest

from peerloom.kit.tracing import PastSpan, traceparent_below
from peerloom.services.trainer.jobs.job_spans import JobSpans, job_traceparent
from peerloom.v1.trainer_pb2 import Job, JobState, StepProgress, WatchJobResponse, Worker

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ANNA, BERT = (Worker(worker_id=f"worker-{name}", node_name=name) for name in ("anna", "bert"))


def job(state: "JobState.ValueType" = JobState.JOB_STATE_RUNNING, workers: Iterable[Worker] = ()) -> Job:
    made = Job(job_id="job-1", state=state, workers=list(workers), traceparent=PARENT)
    made.spec.task = "digits"
    made.submit_time.FromSeconds(100)
    return made


def at(time_s: float, event: WatchJobResponse) -> WatchJobResponse:
    event.time.FromMilliseconds(round(1000 * time_s))
    return event


def formed(time_s: float, generation: int, *workers: Worker) -> WatchJobResponse:
    event = WatchJobResponse()
    event.generation_formed.generation = generation
    event.generation_formed.workers.extend(workers)
    return at(time_s, event)


def step(time_s: float) -> WatchJobResponse:
    return at(time_s, WatchJobResponse(step=StepProgress(step=1)))


def lost(time_s: float, worker: Worker, reason: str) -> WatchJobResponse:
    event = WatchJobResponse()
    event.worker_lost.worker.CopyFrom(worker)
    event.worker_lost.reason = reason
    return at(time_s, event)


def ended(time_s: float, state: "JobState.ValueType", reason: str) -> WatchJobResponse:
    event = WatchJobResponse()
    event.state_change.state, event.state_change.reason = state, reason
    return at(time_s, event)


def told(spans: list[PastSpan]) -> list[tuple[str, float, float]]:
    return [(span.name, span.begin_s, span.end_s) for span in spans]


def test_a_worker_starts_until_the_first_generation_that_it_is_in() -> None:
    """Both are started at 110; anna is in generation 1 at 112, bert in generation 2 at 115."""
    spans = JobSpans(job())
    assert spans.note(job(workers=[ANNA, BERT]), [], 110.0) == []
    first = spans.note(job(workers=[ANNA, BERT]), [formed(112.0, 1, ANNA)], 112.1)
    assert told(first) == [("start worker", 110.0, 112.0)]
    assert first[0].attributes == {"worker": "worker-anna", "node": "anna"}
    second = spans.note(job(workers=[ANNA, BERT]), [formed(115.0, 2, ANNA, BERT)], 115.1)
    assert told(second) == [("generation", 112.0, 115.0), ("start worker", 110.0, 115.0)]
    assert second[0].attributes["generation"] == 1


def test_a_generation_forms_and_a_loss_is_recovered_from_until_the_next_step() -> None:
    """Two are lost at 120 and 120.5: recovering lasts from the first, and is told once."""
    spans = JobSpans(job(workers=[ANNA, BERT]))
    spans.note(job(), [formed(112.0, 1, ANNA, BERT)], 112.0)
    assert told(spans.note(job(), [step(113.0), step(114.0)], 114.0)) == [("form generation", 112.0, 113.0)]
    assert spans.note(job(), [lost(120.0, ANNA, "killed"), lost(120.5, BERT, "killed")], 120.5) == []
    spans.note(job(), [formed(121.0, 2)], 121.0)
    recovered = spans.note(job(), [step(122.0), step(123.0)], 123.0)
    assert told(recovered) == [("form generation", 121.0, 122.0), ("recover", 120.0, 122.0)]
    assert recovered[1].attributes == {"worker": "worker-anna", "node": "anna", "reason": "killed"}


def test_a_worker_that_is_lost_before_it_came_ends_with_the_reason() -> None:
    spans = JobSpans(job())
    spans.note(job(workers=[ANNA]), [], 110.0)
    [start] = spans.note(job(workers=[ANNA]), [lost(111.0, ANNA, "it ran out of memory")], 111.0)
    assert told([start]) == [("start worker", 110.0, 111.0)]
    assert start.error == "it ran out of memory"


def test_a_job_lasts_from_its_submission_and_all_stands_below_it() -> None:
    """Also for a trainer that took the job over in between: the ids are the same."""
    before, after = JobSpans(job()), JobSpans(job(workers=[ANNA]))
    before.note(job(workers=[ANNA]), [], 110.0)
    [started] = before.note(job(workers=[ANNA]), [formed(112.0, 1, ANNA)], 112.0)
    end = ended(150.0, JobState.JOB_STATE_SUCCEEDED, "the model is trained")
    [whole] = after.note(job(), [end], 150.0)
    assert told([whole]) == [("job", 100.0, 150.0)]
    assert whole.parent == PARENT
    assert started.parent == job_traceparent(job()) == traceparent_below(PARENT, "job-1")
    assert started.parent.split("-")[2] == whole.span_id
    assert whole.attributes["state"] == "succeeded"
    assert whole.error == ""


@pytest.mark.parametrize("state", [JobState.JOB_STATE_FAILED, JobState.JOB_STATE_CANCELLED])
def test_what_is_under_way_ends_with_its_job(state: "JobState.ValueType") -> None:
    spans = JobSpans(job(workers=[ANNA]))
    spans.note(job(), [formed(112.0, 1, ANNA), lost(113.0, ANNA, "killed")], 113.0)
    found = spans.note(job(), [ended(120.0, state, "no worker is left")], 120.0)
    name = JobState.Name(state).removeprefix("JOB_STATE_").lower()
    assert [(span.name, span.error) for span in found] == [
        ("generation", ""),
        ("form generation", "the job ended before its next step"),
        ("recover", "the job ended before its next step"),
        ("job", f"{name}: no worker is left"),
    ]


def test_a_job_that_is_resumed_begins_then() -> None:
    spans = JobSpans(job(JobState.JOB_STATE_FAILED))
    spans.note(job(), [ended(500.0, JobState.JOB_STATE_QUEUED, "resumed from its checkpoint")], 500.0)
    end = ended(510.0, JobState.JOB_STATE_SUCCEEDED, "the model is trained")
    assert told(spans.note(job(), [end], 510.0)) == [("job", 500.0, 510.0)]
