"""What the trainer counts over all jobs: committed events, each once."""

from trainer_room import Room

from peerloom.services.trainer.jobs.job_tally import JobTally
from peerloom.services.trainer.trainer_metrics import TrainerMetrics
from peerloom.v1.trainer_pb2 import JobState, StepProgress, WatchJobResponse, Worker, WorkerLost

SUCCEEDED, RUNNING = JobState.JOB_STATE_SUCCEEDED, JobState.JOB_STATE_RUNNING


def lost(job_id: str, time_s: float) -> WatchJobResponse:
    event = WatchJobResponse(job_id=job_id, worker_lost=WorkerLost(reason="killed"))
    event.time.FromMilliseconds(round(1000 * time_s))
    return event


def step(job_id: str, time_s: float) -> WatchJobResponse:
    progress = StepProgress(step=1, samples=32, workers=3, communicated_bytes=100)
    event = WatchJobResponse(job_id=job_id, step=progress)
    event.time.FromMilliseconds(round(1000 * time_s))
    return event


def test_steps_count_their_samples_and_the_bytes_of_all_workers() -> None:
    tally = JobTally()
    tally.note([step("job-1", 1.0), step("job-2", 2.0)])
    assert (tally.steps, tally.samples, tally.collective_bytes) == (2, 64, 600)


def test_a_recovery_lasts_from_the_first_loss_to_the_next_step_of_the_same_job() -> None:
    """Two are lost at 10 and 10.5; another job's step at 11 ends nothing, the job's own does at 11.5."""
    tally = JobTally()
    tally.note([lost("job-1", 10.0), lost("job-1", 10.5), step("job-2", 11.0)])
    assert sum(tally.recoveries_s.counts) == 0
    tally.note([step("job-1", 11.5), step("job-1", 12.0)])
    assert sum(tally.recoveries_s.counts) == 1
    assert tally.recoveries_s.total == 1.5
    assert tally.workers_lost == 2


def test_a_job_that_ends_without_another_step_did_not_recover() -> None:
    tally = JobTally()
    failed = WatchJobResponse(job_id="job-1")
    failed.state_change.state = JobState.JOB_STATE_FAILED
    tally.note([lost("job-1", 1.0), failed, step("job-1", 500.0)])
    assert sum(tally.recoveries_s.counts) == 0
    assert tally.ended == {JobState.JOB_STATE_FAILED: 1}


async def told(room: Room) -> dict[str, dict[object, object]]:
    return {one.metric.name: dict(one.values) for one in await TrainerMetrics(room.queue).collect()}


async def test_only_what_is_durable_counts_and_a_failed_write_counts_once() -> None:
    room = Room()
    record = room.new_record()
    room.store.failures = 1
    record.state_changed(RUNNING, "it runs")
    record.step_committed(StepProgress(step=1, samples=8))
    assert (await told(room))["peerloom_trainer_commit_queue_length"] == {(): 2}
    await room.queue.write_once()
    assert (await told(room))["peerloom_trainer_steps_committed_total"] == {(): 0}
    await room.queue.write_once()
    found = await told(room)
    assert found["peerloom_trainer_steps_committed_total"] == {(): 1}
    assert found["peerloom_trainer_commit_queue_length"] == {(): 0}
    assert found["peerloom_trainer_jobs"]["running",] == 1


async def test_a_job_is_among_those_that_live_until_it_ended() -> None:
    room = Room()
    record = room.new_record()
    record.workers_added([Worker(worker_id="worker-1")])
    record.worker_lost("worker-1", "killed")
    record.ended(SUCCEEDED, "the model is trained")
    await room.queue.close(record)
    found = await told(room)
    assert set(found["peerloom_trainer_jobs"].values()) == {0}
    assert found["peerloom_trainer_jobs_ended_total"]["succeeded",] == 1
    assert found["peerloom_trainer_workers_lost_total"] == {(): 1}
