"""What a job's page shows of the newest snapshot of it."""

from dataclasses import asdict
from typing import Any

from peerloom.client.types import Job, SyncInUse
from peerloom.dashboard.listings import job_head


def job_facts(job: Job) -> dict[str, Any]:
    """The facts; curves and marks come from events."""
    return {
        **job_head(job),
        "policy": job.spec.policy,
        "requests": job.spec.requests,
        "backend": job.backend,
        "robust": job.spec.robust,
        "batch_size": job.spec.batch_size,
        "learning_rate": job.spec.learning_rate,
        "generation": job.generation,
        "progress": asdict(job.progress) if job.progress else None,
        "checkpoint_step": job.checkpoint_step,
        "begun_anew": job.begun_anew,
        "answers": [{**asdict(one), "accepted": one.accepted} for one in job.answers],
        "choice": str(job.choice) if job.choice else "",
        "passed_over": [asdict(one) for one in job.choice.passed_over] if job.choice else [],
        "workers": [{**asdict(one), "holds": str(one.stage) if one.stage else ""} for one in job.workers],
        "is_script": job.spec.task.endswith(".py"),
        "script_run": asdict(job.script_run) if job.script_run else None,
        "exit_status": job.result.exit_status if job.result else None,
        "files": job.files,
        "asked_sync": job.spec.sync,
        "plan": job.spec.plan,
        "sync": _sync(job.sync) if job.sync else None,
        "ledger": asdict(job.ledger) | {"stretches": len(job.ledger.stretches)} if job.ledger else None,
        "evaluation": str(job.evaluation) if job.evaluation else "",
        "audits": asdict(job.audits) if job.audits else None,
        "carried": asdict(job.traffic) if job.traffic else None,
        "model": job.result.model.digest if job.result and job.result.model else None,
    }


def _sync(sync: SyncInUse) -> dict[str, Any]:
    """What `auto` chose, why, and the figures that it compared; times in milliseconds, None while unknown."""
    predicted = sync.predicted.step_s if sync.predicted else None
    figures = {"predicted": predicted, "measured": sync.measured_step_s, "runner_up": sync.runner_up_step_s}
    return {
        "method": sync.method,
        "reason": sync.reason,
        "runner_up_method": sync.runner_up,
        "changes": sync.changes,
        **{f"{name}_ms": None if seconds is None else seconds * 1000 for name, seconds in figures.items()},
    }
