"""A job as its page shows it: the events in their order, and the newest snapshot."""

from collections import deque
from dataclasses import asdict
from typing import Any

from peerloom.client.curves import Curves
from peerloom.client.types import (
    EpochFinished,
    GenerationFormed,
    Job,
    JobEvent,
    LiarDismissed,
    NodeAccused,
    NodeAnswered,
    StateChanged,
    StepCommitted,
    WorkerLost,
)
from peerloom.dashboard.listings import job_head

MARK_LIMIT = 500  # of each kind of list: generations, epochs, marks
FIGURES = ("loss", "samples_per_s", "compute_ms", "communication_ms")


class JobPage:
    """Everything that is kept of one job's events; bounded, however long the job is."""

    def __init__(self) -> None:
        self._curves = Curves(FIGURES)
        self._epochs: list[dict[str, Any]] = []
        self._generations: list[dict[str, Any]] = []
        self._marks: list[dict[str, Any]] = []
        self._members: dict[str, str] = {}
        self._bytes = 0
        self._log: list[dict[str, Any]] = []
        self._events: deque[JobEvent] = deque(maxlen=MARK_LIMIT)
        self._job: Job | None = None

    def refresh(self, job: Job) -> None:
        """Takes a snapshot of the job."""
        self._job = job

    def apply(self, event: JobEvent) -> None:
        """Takes an event."""
        match event:
            case StepCommitted():
                self._step(event)
                return  # they are no lines
            case EpochFinished():
                self._epoch(event)
            case GenerationFormed():
                self._generation(event)
            case WorkerLost():
                self._members.pop(event.worker.id, None)
                self._mark("lost", event.worker.node_name, event.reason)
            case NodeAccused():
                self._mark("accused", event.accusation.node_name, str(event))
            case LiarDismissed():
                self._mark("dismissed", event.dismissal.node_name, event.dismissal.reason)
        self._events.append(event)
        if not isinstance(event, NodeAnswered | StateChanged | EpochFinished):
            _keep(self._log, {"time": event.time, "text": str(event)})

    def page(self) -> dict[str, Any]:
        """The page; without a snapshot there is none yet."""
        job = self._job
        return {
            **(_facts(job) if job else {}),
            "steps": self._curves.columns(),
            "stride": self._curves.stride,
            "epochs": self._epochs,
            "generations": self._generations,
            "marks": self._marks,
            "bytes": self._bytes,
            "log": self._log[::-1],
        }

    def events(self) -> list[dict[str, Any]]:
        """All that happened but steps, oldest first."""
        return [{"time": event.time, "text": str(event)} for event in self._events]

    def _step(self, event: StepCommitted) -> None:
        self._bytes += event.communicated_bytes
        figures = {
            "loss": event.loss,
            "samples_per_s": event.samples_per_s,
            "compute_ms": event.compute_s * 1000,
            "communication_ms": event.communication_s * 1000,
        }
        self._curves.add(event.step, figures)

    def _epoch(self, event: EpochFinished) -> None:
        self._epochs = [one for one in self._epochs if one["epoch"] < event.epoch]
        found = {
            "epoch": event.epoch,
            "step": self._curves.last_step,
            "metric": event.metric,
            "name": event.metric_name,
            "loss": event.loss,
        }
        _keep(self._epochs, found)

    def _generation(self, event: GenerationFormed) -> None:
        now = {worker.id: worker.node_name for worker in event.workers}
        if self._generations:
            joined = [name for key, name in now.items() if key not in self._members]
            for name in dict.fromkeys(joined):
                workers = f"{joined.count(name)} of its workers joined generation {event.generation}"
                self._mark("joined", name, workers, event.first_step)
        self._members = now
        formed = {
            "generation": event.generation,
            "first_step": event.first_step,
            "workers": len(event.workers),
            "nodes": sorted(set(now.values())),
        }
        _keep(self._generations, formed)

    def _mark(self, kind: str, node: str, text: str, step: int | None = None) -> None:
        at = self._curves.last_step if step is None else step
        _keep(self._marks, {"kind": kind, "node": node, "text": text, "step": at})


def _keep(kept: list[dict[str, Any]], newest: dict[str, Any]) -> None:
    kept.append(newest)
    del kept[:-MARK_LIMIT]


def _facts(job: Job) -> dict[str, Any]:
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
        "answers": [{**asdict(one), "accepted": one.accepted} for one in job.answers],
        "choice": str(job.choice) if job.choice else "",
        "passed_over": [asdict(one) for one in job.choice.passed_over] if job.choice else [],
        "workers": [asdict(one) for one in job.workers],
        "ledger": asdict(job.ledger) | {"stretches": len(job.ledger.stretches)} if job.ledger else None,
        "evaluation": str(job.evaluation) if job.evaluation else "",
        "audits": asdict(job.audits) if job.audits else None,
        "carried_bytes": sum(link.sent_bytes for link in job.traffic.links) if job.traffic else None,
        "model": job.result.model.digest if job.result and job.result.model else None,
    }
