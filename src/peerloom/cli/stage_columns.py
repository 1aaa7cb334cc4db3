"""The columns of a job's workers that tell of its stages: who holds which, and where shadows lie."""

from peerloom.client.types import Job, Worker
from peerloom.kit.printable import Column


def stage_columns(job: Job) -> tuple[Column, ...]:
    """STAGE, and SHADOW where some worker has told of one; none for a job without stages."""
    if all(worker.stage is None for worker in job.workers):
        return ()
    stage = Column("STAGE", lambda worker: str(worker.stage or ""))
    if all(worker.shadow is None for worker in job.workers):
        return (stage,)
    return stage, Column("SHADOW", lambda worker: _shadow_of(job, worker))


def _shadow_of(job: Job, worker: Worker) -> str:
    """Where the copy of a worker's stage lies, and how many steps it is behind."""
    if worker.stage is None or worker.ended:
        return ""
    for holder in job.workers:
        kept = holder.shadow
        if kept is None or kept.stage != worker.stage.number or holder.ended:
            continue
        if kept.why_not:
            return "none"
        behind = job.progress.step - kept.step if job.progress else 0
        age = f", {behind} behind" if behind > 0 else ""
        return f"on {holder.node_name}, step {kept.step}{age}"
    return ""
