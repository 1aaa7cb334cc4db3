"""A trainer chooses its job's method by what two workers measured; the clock and all figures are invented."""

import pytest
from tuned_job import AT_WORK, IDS, RING, TunedJob

from peerloom.services.trainer.generations.known_ways import LASTING_S
from peerloom.services.trainer.generations.sync_decisions import CHANGE_INTERVAL_S, FIRST_INTERVAL_S
from peerloom.services.trainer.jobs.sync_entries import in_use
from peerloom.services.trainer.workers.reports import why_not_said
from peerloom.services.trainer.workers.state import Idle, WorkerState
from peerloom.v1.trainer_pb2 import (
    MeasuredCodec,
    MeasuredLayer,
    MeasuredLink,
    WorkerMeasured,
    WorkerSessionRequest,
)


@pytest.fixture
def job() -> TunedJob:
    return TunedJob()


async def test_a_job_begins_with_the_all_reduce_and_changes_once_all_is_measured(job: TunedJob) -> None:
    assert in_use(job.record.job) == RING
    assert job.record.job.sync_in_use.reason == "until the links and layers are measured"
    job.steps(30, 0.8)
    assert await job.wanted() is None
    job.measured()
    form = await job.wanted()
    assert form is not None
    assert (form.worker_ids, form.newcomers, form.beside, form.first_step) == (IDS, 0, True, 30)
    assert "ring" not in form.sync
    assert "less than the 800 ms measured with" in form.reason
    assert await job.wanted() is None, "one change is made once"


async def test_what_disappoints_is_left_as_soon_as_its_steps_are_measured(job: TunedJob) -> None:
    await job.changed()
    job.measured()
    job.steps(30, 0.9)
    back = await job.wanted()
    assert back is not None
    assert back.sync == RING
    assert back.reason.startswith("a step of 800 ms was measured before, 11% less than the 900 ms")
    foretold_s = job.record.job.sync_in_use.predicted.step_s
    job.form(RING)
    job.measured()
    job.steps(30, 0.95)
    assert await job.wanted() is None, "what has been used before isn't new"
    told_s = job.record.job.sync_in_use.predicted.step_s
    assert told_s == pytest.approx(0.78, rel=0.02), "as before it was left, whatever others took since"
    assert foretold_s < told_s


async def test_first_steps_that_were_long_make_no_prediction_longer(job: TunedJob) -> None:
    """One step of 20 s is enough to leave a ring of 2 s; of what comes after it 0.56 s are predicted."""
    job.measured(delay_s=0.5, bits_per_s=1e12)
    job.steps(3, 20.0)
    form = await job.wanted()
    assert form is not None
    job.form(form.sync)
    job.measured(delay_s=0.5, bits_per_s=1e12)
    job.steps(30, 0.6)
    assert await job.wanted() is None
    assert job.record.job.sync_in_use.predicted.step_s == pytest.approx(0.56, abs=0.01)


async def test_a_change_is_an_event_and_a_part_of_the_record(job: TunedJob) -> None:
    form = await job.changed()
    found = job.record.job.sync_in_use
    assert (found.method, found.changes, in_use(job.record.job)) == (form.sync, 1, form.sync)
    change = job.record.take_change()
    assert change is not None
    [event] = [each.sync_changed for each in change.events if each.HasField("sync_changed")]
    assert (event.generation, event.method, event.former) == (2, form.sync, RING)
    [*_, formed] = [each.generation_formed for each in change.events if each.HasField("generation_formed")]
    assert formed.sync == form.sync


async def test_what_is_shown_has_the_predicted_step_beside_the_measured_one(job: TunedJob) -> None:
    job.measured()
    job.steps(100, 0.01)
    assert await job.wanted() is None
    shown = job.record.job.sync_in_use
    assert shown.method == RING
    assert shown.measured_step_s == pytest.approx(0.01)
    parts = (shown.predicted.compute_s, shown.predicted.exposed_s, shown.predicted.compression_s)
    assert shown.predicted.step_s == pytest.approx(sum(parts))
    assert shown.predicted.compute_s == pytest.approx(0.06)
    assert shown.runner_up not in ("", RING)
    assert shown.runner_up_step_s > 0.01
    assert "no less is expected" in shown.reason


async def test_nobody_is_disturbed_who_joins_and_no_other_generation_is_changed(job: TunedJob) -> None:
    job.measured()
    job.steps(30, 0.8)
    assert await job.wanted([*AT_WORK, WorkerState("worker-3", Idle())]) is None
    job.form(worker_ids=IDS[:1])
    assert job.tuner.change(AT_WORK) is None


async def test_a_method_outlives_its_trainer_and_the_next_change_keeps_its_distance(job: TunedJob) -> None:
    """The workers say again what they measured; what steps took before is in the record."""
    form = await job.changed()
    job.restart()
    job.measured()
    job.steps(30, 9.0)
    assert await job.wanted() is None
    assert in_use(job.record.job) == form.sync
    assert "10 s after the last" in job.record.job.sync_in_use.reason
    job.room.clock.advance(FIRST_INTERVAL_S)
    back = await job.wanted()
    assert back is not None
    assert (back.sync, "800 ms was measured before" in back.reason) == (RING, True)


async def test_a_broken_promise_is_taken_back_with_the_same_workers_and_forgotten_with_others(
    job: TunedJob,
) -> None:
    await job.changed()
    job.measured()
    job.steps(30, 1.6)
    job.room.clock.advance(FIRST_INTERVAL_S)
    back = await job.wanted()
    assert back is not None
    assert back.sync == RING
    assert "800 ms was measured before" in back.reason
    job.form(worker_ids=IDS[::-1])  # a worker was away meanwhile, and they have other ranks
    job.steps(30, 1.6)
    job.form(worker_ids=IDS[:1])
    job.steps(30, 0.5)
    job.form(worker_ids=IDS)
    job.measured()
    job.steps(30, 1.6)
    after = await job.wanted()
    assert after is None or "was measured before" not in after.reason


async def test_a_single_worker_is_told_to_have_no_choice(job: TunedJob) -> None:
    job.form(worker_ids=IDS[:1])
    job.steps(30, 0.8)
    assert await job.wanted(AT_WORK[:1]) is None
    assert job.record.job.sync_in_use.reason == "a single worker has nobody to synchronise with"


async def test_codecs_are_taken_only_where_the_quality_says_so() -> None:
    for quality, kinds in (("exact", {"none"}), ("near", {"mxfp4", "none"})):
        job = TunedJob(f"auto,quality={quality}")
        job.measured(codecs=("mxfp4", "1bit"))
        job.steps(30, 0.8)
        form = await job.wanted()
        assert form is not None
        assert form.sync.rpartition("codec=")[2] in kinds
        assert ("codec=mxfp4" in form.sync) == (quality == "near")


async def test_predictions_are_by_the_first_steps_until_more_are_measured(job: TunedJob) -> None:
    """Layers took 60 ms when they were timed, and take 20 by now; a little more is no other time."""
    job.measured()
    job.steps(1, 0.8)
    await job.tuner.judge()
    assert job.record.job.sync_in_use.predicted.compute_s == pytest.approx(0.06)
    job.steps(30, 0.8, compute_s=0.02)
    await job.tuner.judge()
    assert job.record.job.sync_in_use.predicted.compute_s == pytest.approx(0.02)
    job.steps(500, 0.8, compute_s=0.024)
    job.room.clock.advance(CHANGE_INTERVAL_S)
    await job.tuner.judge()
    assert job.record.job.sync_in_use.predicted.compute_s == pytest.approx(0.02)
    job.steps(500, 0.8, compute_s=0.026)
    await job.tuner.judge()
    assert job.record.job.sync_in_use.predicted.compute_s == pytest.approx(0.026)


async def test_a_step_that_is_short_shows_that_links_carry_more(job: TunedJob) -> None:
    """A ring's 0.78 s are 0.06 of computing, 0.4 of delays, and 0.32 by 100 Mbit/s: 0.62 s show 200 Mbit/s.

    By doubling it is a delay of 0.1 s, and as many bytes. What is shown of it stays what was expected before
    its own steps, though these show more.
    """
    job.measured()
    job.steps(30, 0.62)
    form = await job.wanted()
    assert form is not None
    assert "topology=doubling" in form.sync
    assert job.record.job.sync_in_use.runner_up_step_s == pytest.approx(0.06 + 0.1 + 0.16, rel=0.02)
    assert job.record.job.sync_in_use.predicted.step_s == pytest.approx(0.78, rel=0.02)
    job.form(form.sync)
    job.measured()
    job.steps(30, 0.24)
    await job.tuner.judge()
    assert job.record.job.sync_in_use.predicted.step_s == pytest.approx(0.32, rel=0.02)


async def test_what_is_shown_as_predicted_has_in_it_what_the_model_did_not_see_before(job: TunedJob) -> None:
    """The ring took 1.5 times 0.78 s, so by doubling it would be 1.5 times 0.06 + 0.1 + 0.32 s."""
    job.measured()
    job.steps(30, 1.5 * 0.78)
    form = await job.wanted()
    assert form is not None
    assert job.record.job.sync_in_use.predicted.step_s == pytest.approx(0.78, rel=0.02)
    expected_s = job.record.job.sync_in_use.runner_up_step_s
    assert expected_s == pytest.approx(0.72, rel=0.03)
    job.form(form.sync)
    job.measured()
    job.steps(30, 0.9)
    await job.tuner.judge()
    shown = job.record.job.sync_in_use.predicted
    assert shown.step_s == pytest.approx(expected_s)
    assert shown.step_s == pytest.approx(shown.compute_s + shown.exposed_s)


@pytest.mark.parametrize(("step_s", "least"), [(0.1, 10), (0.3, 9), (0.7, 5), (2.5, 5)])
async def test_long_steps_need_fewer(job: TunedJob, step_s: float, least: int) -> None:
    """Two warm up; then it takes eight and half a second, or three and two seconds, to gain a little."""
    job.measured(delay_s=step_s / 8, bits_per_s=1e8 / step_s)
    job.steps(least - 1, step_s, compute_s=step_s / 2)
    assert await job.wanted() is None
    job.steps(1, step_s, compute_s=step_s / 2)
    form = await job.wanted()
    assert form is not None
    assert 0.05 < 1 - job.record.job.sync_in_use.runner_up_step_s / step_s < 0.5


@pytest.mark.parametrize(("step_s", "least"), [(0.1, 7), (0.3, 4), (0.8, 3), (2.5, 3)])
async def test_for_more_than_half_of_a_step_half_a_second_is_enough(step_s: float, least: int) -> None:
    """After the two that warm up. A ring takes four single ways, doubling one."""
    job = TunedJob()
    job.measured(delay_s=step_s / 4.5, bits_per_s=1e12)
    job.steps(least - 1, step_s, compute_s=step_s / 10)
    assert await job.wanted() is None
    job.steps(1, step_s, compute_s=step_s / 10)
    form = await job.wanted()
    assert form is not None
    assert "doubling" in form.sync


async def test_what_a_few_steps_told_is_told_better_by_enough(job: TunedJob) -> None:
    """Of computing: predictions are made again."""
    job.measured()
    job.steps(3, 0.8, compute_s=0.05)
    await job.tuner.judge()
    assert job.record.job.sync_in_use.predicted.compute_s == pytest.approx(0.05)
    assert "after so few steps a change is made for over 50%" in job.record.job.sync_in_use.reason
    job.steps(1, 0.8, compute_s=0.04)
    await job.tuner.judge()
    assert job.record.job.sync_in_use.predicted.compute_s == pytest.approx(0.05)
    job.steps(30, 0.8, compute_s=0.04)
    await job.tuner.judge()
    assert job.record.job.sync_in_use.predicted.compute_s == pytest.approx(0.04)


@pytest.mark.parametrize(("step_s", "least"), [(0.01, 52), (0.2, 5), (0.7, 3)])
async def test_what_steps_take_is_told_after_half_a_second(job: TunedJob, step_s: float, least: int) -> None:
    job.steps(least - 1, step_s)
    await job.tuner.judge()
    assert job.record.job.sync_in_use.measured_step_s == 0
    job.steps(1, step_s)
    await job.tuner.judge()
    assert job.record.job.sync_in_use.measured_step_s == pytest.approx(step_s)


async def test_of_rounds_whole_ones_warm_up() -> None:
    """Two of 16 steps each, then half a second of steps says what one takes."""
    job = TunedJob("auto,quality=relaxed")
    job.form("period=16")
    job.steps(36, 0.1)
    await job.tuner.judge()
    assert job.record.job.sync_in_use.measured_step_s == 0
    job.steps(1, 0.1)
    await job.tuner.judge()
    assert job.record.job.sync_in_use.measured_step_s == pytest.approx(0.1)


async def test_who_asks_for_a_method_keeps_it() -> None:
    job = TunedJob("codec=int8")
    assert not job.tuner.has_a_say
    job.measured()
    job.steps(30, 0.8)
    assert await job.wanted() is None
    assert not job.record.job.HasField("sync_in_use")
    assert in_use(job.record.job) == job.record.job.spec.sync


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        (WorkerMeasured(generation=2), "in generation 2 of 1"),
        (WorkerMeasured(generation=1, links=[MeasuredLink()] * 3), "more than there are"),
        (WorkerMeasured(generation=1, links=[MeasuredLink(rank=1)]), "carries nothing"),
        (
            WorkerMeasured(
                generation=1,
                links=[MeasuredLink(rank=1, delay_s=-1, sent_bits_per_s=1, received_bits_per_s=1)],
            ),
            "its delay_s is -1",
        ),
        (WorkerMeasured(generation=1, codecs=[MeasuredCodec(encode_s=1e30)]), "its encode_s is 1e+30"),
        (WorkerMeasured(generation=1, together_bits_per_s=-1), "its together_bits_per_s is -1"),
        (WorkerMeasured(generation=1, layers=[MeasuredLayer(parameters=2**60)]), "a layer of"),
        (
            WorkerMeasured(generation=1, layers=[MeasuredLayer(forward_s=float("nan"))]),
            "its forward_s is nan",
        ),
    ],
)
def test_measurements_that_cannot_be_are_refused(job: TunedJob, measured: WorkerMeasured, why: str) -> None:
    reason = why_not_said(job.record.job, WorkerSessionRequest(measured=measured))
    assert why in reason


async def test_the_same_nodes_measure_their_ways_once(job: TunedJob) -> None:
    assert not job.tuner.knows_ways(IDS)
    job.measured()  # before the trainer has heard of a step
    assert job.tuner.knows_ways(IDS)
    job.steps(30, 0.8)
    assert job.tuner.knows_ways(IDS[::-1])
    first = await job.wanted()
    assert first is not None
    job.form(first.sync, IDS[::-1])
    job.steps(30, 5.0)
    for worker_id, has_layers in ((IDS[1], True), (IDS[0], False)):
        layers = [MeasuredLayer(parameters=1_000_000, forward_s=0.02, backward_s=0.04)] if has_layers else []
        generation = job.record.generation
        told = WorkerMeasured(generation=generation, layers=layers, ways_known=True)
        job.tuner.heard(worker_id, told)
    job.room.clock.advance(FIRST_INTERVAL_S)
    assert await job.wanted() is not None, "it predicts without links that were told of"
    job.room.clock.advance(LASTING_S)
    assert not job.tuner.knows_ways(IDS), "what was told of as known is no newer than it was"


def test_who_asks_for_a_method_knows_no_ways() -> None:
    assert not TunedJob("topology=direct").tuner.knows_ways(IDS)
