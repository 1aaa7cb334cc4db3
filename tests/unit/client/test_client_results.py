"""How a job's end is told: as a value, and on demand as an exception."""

import pytest

from peerloom import CancelledError, FailedPreconditionError, JobResult, PeerloomError
from peerloom.client.types import JobState


def result_in(state: JobState) -> JobResult:
    nothing = (None, None, (), None, None, None, None, None, None, None, None)
    return JobResult("job-1", state, "all refused", *nothing)


def test_a_success_returns_itself() -> None:
    result = result_in("succeeded")
    assert result.raise_for_state() is result


@pytest.mark.parametrize(
    ("state", "kind", "reason"),
    [
        ("failed", FailedPreconditionError, "JOB_FAILED"),
        ("no_compute", FailedPreconditionError, "JOB_NO_COMPUTE"),
        ("cancelled", CancelledError, "JOB_CANCELLED"),
    ],
)
def test_a_bad_end_raises_with_reason_and_job(
    state: JobState, kind: type[PeerloomError], reason: str
) -> None:
    with pytest.raises(kind, match=r"job-1.*all refused") as caught:
        result_in(state).raise_for_state()
    assert (caught.value.reason, caught.value.metadata) == (reason, {"job_id": "job-1"})
