"""How a job is synchronised, as its record has it: pure functions that write into the job."""

from peerloom.kit.limits import cut_reason
from peerloom.kit.sync_auto import first_method, is_auto
from peerloom.services.trainer.generations.sync_decisions import MeasuredStep, SyncVerdict
from peerloom.v1.trainer_pb2 import Job, JobSync, SyncChanged, SyncPrediction

NOT_YET = "until the links and layers are measured"


def in_use(job: Job) -> str:
    """The method that the newest generation has, or the first one will; a script's is empty."""
    if not is_auto(job.spec.sync):
        return job.spec.sync
    return job.sync_in_use.method or str(first_method(job.spec.sync))


def take(job: Job, method: str, reason: str) -> SyncChanged | None:
    """The newest generation has this method (empty: the one in use); returns what is told of a change."""
    if not is_auto(job.spec.sync):
        return None
    former = in_use(job)
    if not method or method == former:
        job.sync_in_use.method, job.sync_in_use.reason = former, job.sync_in_use.reason or NOT_YET
        return None
    reason = cut_reason(reason)
    job.sync_in_use.CopyFrom(JobSync(method=method, reason=reason, changes=job.sync_in_use.changes + 1))
    return SyncChanged(generation=job.generation, method=method, former=former, reason=reason)


def judge(job: Job, verdict: SyncVerdict, measured: MeasuredStep | None) -> bool:
    """The method in use was looked at, and stays; False: nothing is new."""
    found = JobSync(
        method=str(verdict.method), reason=cut_reason(verdict.reason), changes=job.sync_in_use.changes
    )
    if (known := verdict.prediction) is not None:
        found.predicted.CopyFrom(
            SyncPrediction(
                step_s=known.step_s,
                compute_s=known.compute_s,
                exposed_s=known.exposed_s,
                compression_s=known.compression_s,
            )
        )
    if measured is not None:
        found.measured_step_s, found.measured_compute_s = measured.step_s, measured.compute_s
        found.measured_communication_s = measured.communication_s
    if verdict.runner_up is not None:
        method, found.runner_up_step_s = verdict.runner_up
        found.runner_up = str(method)
    is_news = found != job.sync_in_use
    job.sync_in_use.CopyFrom(found)
    return is_news
