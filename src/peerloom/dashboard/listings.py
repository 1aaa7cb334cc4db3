"""Jobs, models, artifacts and beliefs as pages show them."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from peerloom.client.types import Belief, Job, KeptArtifact, Model


def job_head(job: Job) -> dict[str, Any]:
    """What both its row and its own page begin with."""
    return {
        "id": job.id,
        "name": job.spec.name,
        "task": job.spec.task,
        "state": job.state,
        "reason": job.reason,
        "ended": job.ended,
        "submitted": job.submit_time,
        "end": job.end_time,
    }


def job_rows(jobs: Iterable[Job]) -> list[dict[str, Any]]:
    """One row a job, in the order given."""
    return [{**job_head(job), **_progress(job)} for job in jobs]


def jobs_by_node(jobs: Iterable[Job]) -> dict[str, list[str]]:
    """The ids of the jobs that have a worker on each node, by the node's id; who has ended doesn't count."""
    found: dict[str, list[str]] = {}
    for job in jobs:
        for node in {worker.node_id for worker in job.workers if not worker.ended and not job.ended}:
            found.setdefault(node, []).append(job.id)
    return found


def _progress(job: Job) -> dict[str, Any]:
    names = ("step", "total_steps", "epoch", "total_epochs", "loss", "samples_per_s", "metric", "metric_name")
    return {name: getattr(job.progress, name) if job.progress else None for name in names}


def model_rows(models: Iterable[Model]) -> list[dict[str, Any]]:
    """One row a model; `began_with` is the reference of the model that it began with, or its digest."""
    known = list(models)
    names = {model.digest: model.reference for model in known}
    return [
        {
            "reference": model.reference,
            "digest": model.digest,
            "size_bytes": model.size_bytes,
            "task": model.task,
            "job": model.job_id,
            "metric": model.metric,
            "metric_name": model.metric_name,
            "created": model.create_time,
            "began_with": names.get(model.initial_model, model.initial_model[:12]),
            "input": _raw_input(model),
        }
        for model in known
    ]


def _raw_input(model: Model) -> dict[str, Any] | None:
    """What a box to ask it needs; None for a model that says nothing of its inputs."""
    raw = model.raw_input
    if raw is None:
        return None
    return {
        "shape": raw.shape,
        "low": raw.low,
        "high": raw.high,
        "is_whole": "int" in raw.dtype,
        "is_text": raw.vocabulary is not None,
    }


def artifact_rows(artifacts: Iterable[KeptArtifact]) -> list[dict[str, Any]]:
    """One row an artifact: models first, then data, code, checkpoints; the largest of a kind first."""
    places = {kind: place for place, kind in enumerate(("model", "data_set", "code", "checkpoint"))}
    ordered = sorted(artifacts, key=lambda one: (places.get(one.kind, len(places)), -one.size_bytes))
    return [asdict(one) for one in ordered]


def belief_steps(history: Iterable[Belief]) -> list[dict[str, Any]]:
    """One row an update of a belief, oldest first, from a history that begins with the newest."""
    rows = [
        {
            "updates": belief.updates,
            "time": belief.update_time,
            "belief": belief.belief,
            "terms": asdict(belief.terms) if belief.terms else None,
            "evidence": _evidence(belief),
        }
        for belief in history
    ]
    return rows[::-1]


def belief_rows(beliefs: Iterable[Belief]) -> list[dict[str, Any]]:
    """One row a node with its belief, every term of it, the formula in figures, and the newest evidence."""
    return [
        {
            "id": belief.node_id,
            "name": belief.name,
            "belief": belief.belief,
            "updates": belief.updates,
            "terms": asdict(belief.terms) if belief.terms else None,
            "formula": str(belief.terms) if belief.terms else "",
            "evidence": _evidence(belief),
        }
        for belief in beliefs
    ]


def _evidence(belief: Belief) -> dict[str, Any] | None:
    found = belief.evidence
    if found is None:
        return None
    return {"kind": found.kind, "detail": found.detail, "job": found.job_id, "time": found.time}
