"""A job that may have rounds of local steps begins with them; the clock and all figures are invented."""

import pytest
from tuned_job import RING, TunedJob

from peerloom.kit.sync_auto import FIRST_ROUNDS
from peerloom.services.trainer.jobs.sync_entries import in_use

ROUNDS = str(FIRST_ROUNDS)


@pytest.mark.parametrize(("quality", "first"), [("relaxed", ROUNDS), ("near", RING), ("exact", RING)])
async def test_a_job_begins_with_rounds_where_its_quality_allows_them(quality: str, first: str) -> None:
    job = TunedJob(f"auto,quality={quality}", bears_rounds=True)
    assert in_use(job.record.job) == first
    assert job.record.job.sync_in_use.reason == "until the links and layers are measured"


async def test_a_task_without_rounds_gets_none() -> None:
    """They would be far faster than any exchange at each step."""
    job = TunedJob("auto,quality=relaxed", bears_rounds=False)
    assert in_use(job.record.job) == RING
    assert "period" not in (await job.changed()).sync


async def test_rounds_stay_where_a_round_trip_in_each_step_would_cost_more() -> None:
    """0.2 s beside 60 ms of computing."""
    job = TunedJob("auto,quality=relaxed", bears_rounds=True)
    job.measured(codecs=("mxfp4",))
    job.steps(60, 0.08)
    assert await job.wanted() is None
    shown = job.record.job.sync_in_use
    assert (shown.method, shown.changes) == (ROUNDS, 0)


async def test_rounds_that_nobody_chose_are_left_for_what_loses_less_and_takes_as_long() -> None:
    """Over 100 Gbit/s and a microsecond nothing is saved by seldom exchanges, nor by fewer bits."""
    job = TunedJob("auto,quality=relaxed", bears_rounds=True)
    job.measured(delay_s=1e-6, codecs=("mxfp4",), bits_per_s=1e11)
    job.steps(400, 0.06)
    form = await job.wanted()
    assert form is not None
    assert form.sync.endswith("codec=none")
    assert "period" not in form.sync
    assert "which the job began with, and which loses more" in form.reason
    job.form(form.sync)
    job.measured(delay_s=1e-6, codecs=("mxfp4",), bits_per_s=1e11)
    job.steps(200, 0.07)
    back = await job.wanted()
    assert back is not None, "over 5 % slower than rounds were"
    assert back.sync == ROUNDS
    job.form(back.sync)
    job.measured(delay_s=1e-6, codecs=("mxfp4",), bits_per_s=1e11)
    job.steps(400, 0.0605)
    assert await job.wanted() is None, "they are chosen now"


async def test_a_job_that_is_nearly_over_keeps_the_rounds_it_began_with() -> None:
    """Of the 10,000 steps 333 are left, 20 s."""
    job = TunedJob("auto,quality=relaxed", bears_rounds=True)
    job.record.job.progress.step = 9_200
    job.measured(delay_s=1e-6, codecs=("mxfp4",), bits_per_s=1e11)
    job.steps(468, 0.06)
    assert await job.wanted() is None


async def test_who_can_have_no_rounds_keeps_all_from_them() -> None:
    """It comes while rounds are in use; over these links they would be far faster than anything else."""
    job = TunedJob("auto,quality=relaxed", bears_rounds=True)
    job.loaded(bears_rounds=False)
    assert in_use(job.record.job) == ROUNDS
    assert not job.record.job.sync_in_use.bears_rounds
    job.loaded(bears_rounds=True)
    job.form(RING)
    assert "period" not in (await job.changed()).sync


async def test_a_job_under_another_plan_is_asked_again() -> None:
    job = TunedJob("auto,quality=relaxed", bears_rounds=False)
    job.record.resumed(spec=job.record.job.spec)
    job.loaded(bears_rounds=True)
    assert job.record.job.sync_in_use.bears_rounds
    assert in_use(job.record.job) == RING, "it goes on as it did"


async def test_a_job_that_goes_on_keeps_its_task_s_word() -> None:
    job = TunedJob("auto,quality=relaxed", bears_rounds=False)
    job.record.resumed()
    job.loaded(bears_rounds=True)
    assert not job.record.job.sync_in_use.bears_rounds
