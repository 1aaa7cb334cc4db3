"""A job as its page shows it: the events in their order, and the newest snapshot."""

from collections import deque
from collections.abc import Iterable
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
from peerloom.dashboard.job_facts import job_facts

MARK_LIMIT = 500  # of each kind of list: generations, epochs, marks, divisions, events
PART_LIMIT = 2000  # of all divisions together: with more workers fewer divisions are kept
LOGGED_LIMIT = 32  # as many names as a script may log numbers by
FIGURES = ("loss", "samples_per_s", "compute_ms", "communication_ms", "kilobytes")


class JobPage:
    """Everything that is kept of one job's events; bounded, however long the job is."""

    def __init__(self) -> None:
        self._curves = Curves(FIGURES)
        self._logged: dict[str, Curves] = {}
        self._epochs: list[dict[str, Any]] = []
        self._generations: list[dict[str, Any]] = []
        self._marks: list[dict[str, Any]] = []
        self._divisions: list[dict[str, Any]] = []
        self._homes: dict[str, str] = {}  # the nodes of the workers that the divisions name
        self._members: dict[str, str] = {}
        self._traffic: dict[str, dict[str, Any]] = {}
        self._method = ""
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

    def page(self) -> dict[str, Any]:
        """The page; without a snapshot there is none yet."""
        told = [
            one for one in self._events if not isinstance(one, NodeAnswered | StateChanged | EpochFinished)
        ]
        return {
            **(job_facts(self._job) if self._job else {}),
            "steps": self._curves.columns(),
            "stride": self._curves.stride,
            "logged": {name: curves.columns() for name, curves in sorted(self._logged.items())},
            "epochs": self._epochs,
            "generations": self._generations,
            "marks": self._marks,
            "divisions": self._divisions,
            "homes": self._homes,
            "traffic": list(self._traffic.values()),
            "log": _lines(told)[::-1],
        }

    def events(self) -> list[dict[str, Any]]:
        """All that happened but steps, oldest first."""
        return _lines(self._events)

    def _step(self, event: StepCommitted) -> None:
        figures = {
            "loss": event.loss,
            "samples_per_s": event.samples_per_s,
            "compute_ms": event.compute_s * 1000,
            "communication_ms": event.communication_s * 1000,
            "kilobytes": event.communicated_bytes / 1000,
        }
        self._curves.add(event.step, figures)
        for name, number in event.metrics.items():
            if name in self._logged or len(self._logged) < LOGGED_LIMIT:
                self._logged.setdefault(name, Curves((name,))).add(event.step, {name: number})
        if event.batch_shares:
            self._divide(event)
        sent = self._traffic.setdefault(self._method, {"method": self._method, "steps": 0, "bytes": 0})
        sent["steps"] += 1
        sent["bytes"] += event.communicated_bytes

    def _divide(self, event: StepCommitted) -> None:
        """Notes which part of a batch each worker takes from this step on, 0 to 1."""
        whole = sum(event.batch_shares) or 1
        shares = zip(self._members, event.batch_shares, strict=False)
        parts = {worker: round(share / whole, 4) for worker, share in shares}
        _keep(self._divisions, {"step": event.step, "parts": parts})
        del self._divisions[: -max(2, PART_LIMIT // max(1, len(parts)))]
        self._homes |= self._members
        shown = {worker for division in self._divisions for worker in division["parts"]}
        self._homes = {worker: node for worker, node in self._homes.items() if worker in shown}

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
        self._method = event.sync
        formed = {
            "generation": event.generation,
            "first_step": event.first_step,
            "workers": len(event.workers),
            "nodes": sorted(set(now.values())),
            "sync": event.sync,
        }
        _keep(self._generations, formed)

    def _mark(self, kind: str, node: str, text: str, step: int | None = None) -> None:
        at = self._curves.last_step if step is None else step
        _keep(self._marks, {"kind": kind, "node": node, "text": text, "step": at})


def _lines(events: Iterable[JobEvent]) -> list[dict[str, Any]]:
    return [{"time": event.time, "text": str(event)} for event in events]


def _keep(kept: list[dict[str, Any]], newest: dict[str, Any]) -> None:
    kept.append(newest)
    del kept[:-MARK_LIMIT]
