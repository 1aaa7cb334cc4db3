"""A job's events in words."""

from typing import Any

from peerloom import (
    AuditsOff,
    EpochFinished,
    GenerationFormed,
    GradientsRefused,
    JobEvent,
    LiarDismissed,
    ModelEvaluated,
    NodeAccused,
    NodeAnswered,
    PlanChosen,
    StateChanged,
    StepCommitted,
    SyncChanged,
    WorkerLost,
)
from peerloom.cli.output import to_plain
from peerloom.kit.printable import escaped
from peerloom.kit.quantity_texts import plural
from peerloom.kit.sync_method import SyncMethod

_USUAL_SYNC = ("", str(SyncMethod()))
_TOLD_STATES = ("selecting", "starting", "waiting")


def describe(event: JobEvent) -> str:
    """One line; empty for an event that a person needs no line for: steps, states that others imply."""
    return escaped(_describe(event))


def _describe(event: JobEvent) -> str:
    if isinstance(event, NodeAnswered):
        answer = event.answer
        given = f"gave {plural(answer.accepted_slots, 'slot')}" if answer.accepted else "gave nothing"
        return f"{answer.name} (belief {answer.belief:.4f}) {given}: {answer.reason}"
    if isinstance(event, GenerationFormed):
        begin = f", from step {event.first_step}" if event.first_step else ""
        workers = plural(len(event.workers), "worker")
        method = f" by {event.sync}" if event.sync not in _USUAL_SYNC else ""
        return f"generation {event.generation}: {workers} over {event.backend}{method}{begin}"
    if isinstance(event, StepCommitted) and event.federated is not None:
        return f"round {event.step}: {event.federated}"
    if isinstance(event, StepCommitted) and event.stale is not None and event.stale.has_refused:
        return f"step {event.step}: {event.stale}"
    if isinstance(event, EpochFinished):
        return f"epoch {event.epoch}: {event.metric_name} {event.metric:.4f}, loss {event.loss:.4f}"
    if isinstance(event, WorkerLost):
        return f"lost a worker on {event.worker.node_name}: {event.reason}"
    if isinstance(
        event,
        NodeAccused
        | LiarDismissed
        | AuditsOff
        | GradientsRefused
        | SyncChanged
        | PlanChosen
        | ModelEvaluated,
    ):
        return str(event)
    if isinstance(event, StateChanged) and event.state in _TOLD_STATES:
        return f"{event.state.replace('_', ' ')}: {event.reason}" if event.reason else event.state
    return ""


def to_object(event: JobEvent) -> dict[str, Any]:
    """The event as an object with its kind under "event", e.g. "step_committed"."""
    words = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(event).__name__)
    return {"event": words.lstrip("_"), **to_plain(event)}
