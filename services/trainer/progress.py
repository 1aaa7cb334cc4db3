"""What a job has reached: each step and epoch enters its record once, however often it is reported."""

from peerloom.kit.clock import Clock, to_timestamp
from peerloom.services.trainer.journal import JobJournal
from peerloom.services.trainer.ledger import add_step
from peerloom.v1.trainer_pb2 import EpochProgress, StepProgress, WatchJobResponse, WorkerPrepared

RATE_WINDOW = 0.9  # weight of the past in the shown samples a second


def note_prepared(journal: JobJournal, prepared: WorkerPrepared) -> None:
    """Notes what a worker found out by loading the task."""
    job = journal.job
    job.spec.CopyFrom(prepared.spec)
    job.progress.total_steps, job.progress.total_epochs = prepared.total_steps, prepared.spec.epochs
    job.ledger.training_samples = prepared.training_samples
    journal.note()


def note_step(journal: JobJournal, step: StepProgress, clock: Clock) -> None:
    """Notes a committed step; one that was noted before is passed over."""
    job = journal.job
    if step.step <= job.progress.step:
        return  # sent again after the line was broken
    if not job.HasField("first_step_time"):
        job.first_step_time.CopyFrom(to_timestamp(clock.wall_s()))
    past = job.progress.samples_per_s or step.samples_per_s
    job.progress.samples_per_s = RATE_WINDOW * past + (1 - RATE_WINDOW) * step.samples_per_s
    job.progress.step, job.progress.loss = step.step, step.loss
    journal.last_step_s = step.step_s
    add_step(job.ledger, step)
    journal.note(WatchJobResponse(step=step))


def note_epoch(journal: JobJournal, epoch: EpochProgress) -> None:
    """Notes a complete epoch; one that was noted before is passed over."""
    progress = journal.job.progress
    if epoch.epoch <= progress.epoch:
        return
    progress.epoch, progress.metric, progress.metric_name = epoch.epoch, epoch.metric, epoch.metric_name
    journal.note(WatchJobResponse(epoch=epoch))
