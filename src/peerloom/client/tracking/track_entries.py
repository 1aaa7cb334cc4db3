"""A job's events as trackers take them: figures over steps, and lines of text."""

import re
from dataclasses import dataclass, fields
from datetime import datetime

from peerloom.client.types import (
    EpochFinished,
    GenerationFormed,
    Job,
    JobEvent,
    NodeAnswered,
    StateChanged,
    StepCommitted,
    WorkerLost,
)
from peerloom.kit.quantity_texts import plural

NAME_LIMIT = 100
_NO_NAME = re.compile(r"[^A-Za-z0-9_. -]")


@dataclass(frozen=True)
class TrackEntry:
    """One event: its place in the job's log, its time in seconds since 1970, the newest step at it.

    `kind` says under which heading `line` stands; both are empty for what has figures only.
    """

    sequence: int
    time_s: float
    step: int
    figures: dict[str, float]
    kind: str = ""
    line: str = ""


class EntryMaker:
    """Makes entries of a job's events, which it is shown in their order from the first on."""

    def __init__(self) -> None:
        self._step, self._time_s, self._lost = 0, 0.0, 0
        self._members: dict[str, str] | None = None
        self._lines: list[str] = []

    def entry(self, event: JobEvent) -> TrackEntry:
        """The event as an entry."""
        if event.time is not None:
            self._time_s = event.time.timestamp()
        if isinstance(event, StepCommitted):
            self._step = event.step
            return TrackEntry(event.sequence, self._time_s, self._step, _figures_of_step(event))
        figures, kind, line = self._told(event)
        self._lines.append(f"{_clock_time(event.time)} step {self._step}: {line}")
        return TrackEntry(event.sequence, self._time_s, self._step, figures, kind, line)

    def newest_lines(self, limit: int) -> str:
        """What happened beside steps, one line each, in at most `limit` characters: the newest of it."""
        kept: list[str] = []
        left = limit
        for line in reversed(self._lines):
            left -= len(line) + 1
            if left < 0:
                break
            kept.append(line)
        self._lines = self._lines[-limit:]  # each has one character at least
        return "\n".join(reversed(kept))

    def _told(self, event: JobEvent) -> tuple[dict[str, float], str, str]:
        match event:
            case EpochFinished():
                metric = f"test/{_name(event.metric_name)}"
                return {metric: event.metric, "epoch/loss": event.loss}, "epochs", str(event)
            case NodeAnswered():
                return {f"belief/{_name(event.answer.name)}": event.answer.belief}, "asked", _answer(event)
            case GenerationFormed():
                figures = {
                    "workers/count": float(len(event.workers)),
                    "workers/generation": float(event.generation),
                }
                return figures, "generations", f"{event}{self._joined(event)}"
            case WorkerLost():
                self._lost += 1
                (self._members or {}).pop(event.worker.id, None)
                return {"workers/lost": self._lost}, "lost", str(event)
            case StateChanged():
                return {}, "states", str(event)
        return {}, "audits", str(event)

    def _joined(self, event: GenerationFormed) -> str:
        before, now = self._members, {worker.id: worker.node_name for worker in event.workers}
        self._members = now
        names = [] if before is None else [name for key, name in now.items() if key not in before]
        return f"; joined: {', '.join(names)}" if names else ""


def parameters_of(job: Job) -> dict[str, str]:
    """What was asked, by its names, of what isn't left open: labels and the task's arguments one by one."""
    found: dict[str, str] = {}
    for field in fields(job.spec):
        value = getattr(job.spec, field.name)
        if field.name in ("labels", "arguments"):
            for key, one in value.items():
                found[f"{field.name}.{_name(key)}"] = str(one)
        elif value not in (None, ""):
            found[field.name] = str(value)
    return found


def ending_of(job: Job) -> str:
    """How the job stands, in words."""
    return f"{job.state.replace('_', ' ')}: {job.reason}" if job.reason else job.state


def _figures_of_step(event: StepCommitted) -> dict[str, float]:
    return {
        "train/loss": event.loss,
        "train/epoch": event.epoch,
        "throughput/samples_per_s": event.samples_per_s,
        "time/step_s": event.step_s,
        "time/compute_s": event.compute_s,
        "time/communication_s": event.communication_s,
        "network/communicated_bytes": event.communicated_bytes,
    }


def _answer(event: NodeAnswered) -> str:
    answer = event.answer
    given = (
        f"gave {answer.accepted_slots} of {plural(answer.slots, 'slot')}"
        if answer.accepted
        else "gave nothing"
    )
    why = f": {answer.reason}" if answer.reason else ""
    chosen = f"; chosen because {answer.chosen_because}" if answer.chosen_because else ""
    return f"{answer.name} (belief {answer.belief:.4f}) {given}{why}{chosen}"


def _name(text: str) -> str:
    """A figure's name, of characters that all trackers take."""
    return _NO_NAME.sub("_", text)[:NAME_LIMIT] or "_"


def _clock_time(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}" if time else "-"
