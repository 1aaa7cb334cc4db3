"""What a job's record has of steps whose parts come in any order: each position counts once an epoch."""

import pytest

from peerloom.errors import InvalidArgumentError
from peerloom.services.trainer.jobs.sample_ledger import add_step, go_back_in, judge
from peerloom.services.trainer.jobs.specs import complete_spec
from peerloom.services.trainer.jobs.stale_entries import why_not_parts
from peerloom.v1.trainer_pb2 import (
    Job,
    JobSpec,
    Ledger,
    SampleRange,
    StalePush,
    StaleStep,
    StepProgress,
    Worker,
)

Ranges = list[tuple[int, int]]


def job_of(sync: str = "ssp:1") -> Job:
    """Ten samples in batches of four: three steps an epoch."""
    spec = complete_spec(JobSpec(task="digits", epochs=2, batch_size=4, sync=sync))
    return Job(spec=spec, ledger=Ledger(training_samples=10), workers=[Worker(), Worker()])


def push_of(used: Ranges, version: int, age: int = 0, verdict: str = "") -> StalePush:
    samples = [SampleRange(first=first, end=end) for first, end in used]
    word = verdict or ("merged" if age else "accepted")
    return StalePush(version=version, age=age, samples=samples, verdict=word, weight=word != "refused")


def step_of(number: int, before: Ranges, *pushes: StalePush) -> StepProgress:
    samples = sum(
        each.end - each.first for push in pushes for each in push.samples if push.verdict != "refused"
    )
    counted = [SampleRange(first=first, end=end) for first, end in before]
    return StepProgress(
        step=number,
        epoch=1,
        samples=samples,
        first_sample=4 * (number - 1),
        generation=1,
        workers=2,
        stale=StaleStep(pushes=pushes, counted=counted),
    )


FIRST = step_of(1, [], push_of([(0, 2)], 0), push_of([(4, 6)], 0))
SECOND = step_of(2, [(0, 2), (4, 6)], push_of([(2, 4)], 0, 1), push_of([(6, 8)], 1))
THIRD = step_of(3, [(0, 8)], push_of([(8, 10)], 2))


def test_parts_in_any_order_make_an_epoch() -> None:
    job = job_of()
    for step in (FIRST, SECOND, THIRD):
        assert why_not_parts(job, step) == ""
        add_step(job.ledger, step)
        job.progress.step = step.step
    assert list(job.ledger.counted) == []
    words = "exact: 1 epoch of 10 samples, each used once; 1 of 5 parts began up to 1 step before"
    assert judge(job.ledger) == (True, words)


def test_between_steps_the_record_knows_what_has_counted() -> None:
    job = job_of()
    add_step(job.ledger, FIRST)
    assert [(each.first, each.end) for each in job.ledger.counted] == [(0, 2), (4, 6)]


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (step_of(2, [(0, 4)], push_of([(4, 8)], 1)), "other samples had counted"),
        (step_of(2, [(0, 2), (4, 6)], push_of([(5, 9)], 1)), "position 5 stands in two of its parts"),
        (step_of(2, [(0, 2), (4, 6)], push_of([(8, 12)], 1)), "no part of an epoch of 10 samples"),
        (step_of(2, [(0, 2)], push_of([(6, 10)], 1)), "tells of 4 after 2"),
        (step_of(2, [(0, 2), (4, 6)], push_of([(6, 10)], 0)), "with an age of 0"),
        (step_of(2, [(0, 2), (4, 6)], push_of([(6, 10)], 1, verdict="lost")), "was 'lost'"),
        (step_of(2, [(0, 2), (4, 6)], push_of([], 1)), "without samples"),
        (step_of(2, [(0, 2), (4, 6)], *[push_of([(6, 10)], 1)] * 40), "40 parts"),
    ],
)
def test_what_cannot_be_is_not_entered(step: StepProgress, why: str) -> None:
    job = job_of()
    add_step(job.ledger, FIRST)
    job.progress.step = 1
    assert why in why_not_parts(job, step)


def test_no_part_is_older_than_the_bound_and_no_other_is_refused() -> None:
    too_old = step_of(3, [(0, 8)], push_of([(8, 10)], 0, 2))
    assert "2 steps old and merged, against staleness=1" in why_not_parts(job_of(), too_old)
    assert why_not_parts(job_of("asp"), too_old) == ""
    early = step_of(3, [(0, 8)], push_of([(8, 10)], 2), push_of([(0, 2)], 2, 1, "refused"))
    assert "1 steps old and refused" in why_not_parts(job_of(), early)


def test_what_was_refused_is_counted_as_such() -> None:
    job = job_of("backup=0.5")
    step = step_of(1, [], push_of([(0, 4)], 0), push_of([(4, 8)], 0, 1, "refused"))
    assert why_not_parts(job, step) == ""
    add_step(job.ledger, step)
    assert (job.ledger.stale.refused, job.ledger.stale.refused_samples) == (1, 4)
    assert judge(job.ledger)[1].endswith("; 1 came too late and were handed out again")


def test_after_steps_were_lost_the_next_one_tells_what_had_counted() -> None:
    job = job_of()
    for step in (FIRST, SECOND):
        add_step(job.ledger, step)
    go_back_in(job, 1)
    job.progress.step = 1
    other = step_of(2, [(0, 4)], push_of([(4, 8)], 1))
    assert why_not_parts(job, other) == ""
    add_step(job.ledger, other)
    is_exact, words = judge(job.ledger)
    assert is_exact, words
    assert words.startswith("exact: 8 samples of epoch 1, each used once")
    assert job.ledger.discarded_samples == 4


def test_equal_shares_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="who is faster takes more of them"):
        complete_spec(JobSpec(task="digits", sync="ssp:1", equal_shares=True))
