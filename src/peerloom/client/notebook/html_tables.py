"""The SDK's values as HTML: a list is a table, one value stands with its fields below each other."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from peerloom.client.types.beliefs import Belief, Policy
from peerloom.client.types.jobs import Job, JobResult, Model, NodeAnswer, Worker
from peerloom.client.types.nodes import Node, ServiceEndpoint, Session
from peerloom.kit.printable import Column, escaped

ROW_LIMIT = 200  # a notebook keeps what it has shown; beyond, the rest is counted
_TROUBLED = frozenset({"suspect", "dead", "failed", "no compute", "interrupted", "no"})
_LEFT, _RIGHT, _RED = "text-align:left", "text-align:right", "color:#c0392b"


def words(text: object) -> str:
    """Text for HTML: nothing in it is markup, and what can't be seen is shown as its escape."""
    return escape(escaped(str(text), "\t\n"))


def html_table(columns: Sequence[Column], values: Sequence[Any]) -> str:
    """A table with a row for each of the first values."""
    heads = "".join(_cell("th", column, column.head) for column in columns)
    rows = "".join(
        f"<tr>{''.join(_cell('td', column, column.text(value)) for column in columns)}</tr>"
        for value in values[:ROW_LIMIT]
    )
    left = len(values) - ROW_LIMIT
    more = f"<p>and {left:,} more</p>" if left > 0 else ""
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{more}"


def html_fields(fields: Iterable[tuple[str, str]]) -> str:
    """Names with what they are, below each other; those without are left out."""
    rows = "".join(
        f'<tr><th style="{_LEFT}">{words(name)}</th>'
        f'<td style="{_LEFT};white-space:pre-wrap{_colour(text)}">{words(text)}</td></tr>'
        for name, text in fields
        if text
    )
    return f"<table><tbody>{rows}</tbody></table>"


def html_of(value: Any) -> str:
    """One of the values that have columns, with what else is known of it."""
    columns = COLUMNS[type(value)]
    fields = [(column.head, column.text(value)) for column in columns if column.text(value) != "-"]
    shown = html_fields([*fields, *_MORE.get(type(value), lambda _: ())(value)])
    if isinstance(value, Job):
        parts: tuple[Sequence[Any], ...] = (value.answers, value.workers)
        shown += "".join(html_of_list(part) for part in parts if part)
    return shown


def html_of_list(values: Sequence[Any]) -> str:
    """Values of one type as a table; said to be none where there is none."""
    return html_table(COLUMNS[type(values[0])], values) if values else "<p>none</p>"


def _cell(tag: str, column: Column, text: str) -> str:
    side = _RIGHT if column.right else _LEFT
    return f'<{tag} style="{side}{_colour(text)}">{words(text)}</{tag}>'


def _colour(text: str) -> str:
    return f";{_RED}" if text in _TROUBLED else ""


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _time(time: datetime | None) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC" if time else "-"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} s"


def _metric(name: str | None, value: float | None) -> str:
    return "-" if value is None else f"{name or 'metric'} {value:.4f}"


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _steps(job: Job) -> str:
    return f"{job.progress.step}/{job.progress.total_steps or '?'}" if job.progress else "-"


def _state(value: Job | JobResult) -> str:
    return value.state.replace("_", " ")


def _session_end(session: Session) -> str:
    return "interrupted" if session.interrupted else "ended" if session.end_time else "open"


def _more_of_node(node: Node) -> Iterable[tuple[str, str]]:
    yield "reason", node.reason
    yield "lends nothing", node.withheld
    yield "busy", str(node.load) if node.load else ""
    yield "labels", _pairs(node.labels)
    yield "last seen", _time(node.last_seen_time)


def _more_of_belief(belief: Belief) -> Iterable[tuple[str, str]]:
    yield "formula", str(belief.terms) if belief.terms else ""
    yield "newest evidence", belief.evidence.detail if belief.evidence else ""


def _more_of_job(job: Job) -> Iterable[tuple[str, str]]:
    yield "reason", job.reason
    yield "arguments", _pairs(job.spec.arguments)
    yield "chosen", str(job.choice) if job.choice else ""
    yield "ledger", job.ledger.verdict if job.ledger else ""
    yield "evaluation", str(job.evaluation) if job.evaluation else ""
    yield "ended", _time(job.end_time) if job.end_time else ""


COLUMNS: Mapping[type, Sequence[Column]] = {
    Node: (
        Column("node", lambda one: one.name),
        Column("state", lambda one: one.state),
        Column("draining", lambda one: "yes" if one.draining else "-"),
        Column("free", lambda one: f"{_or_dash(one.free_slots, 'd')}/{one.slots}", right=True),
        Column("cpu", lambda one: _or_dash(one.load and one.load.cpu_use, ".0%"), right=True),
        Column("memory", lambda one: _or_dash(one.load and one.load.memory_use, ".0%"), right=True),
        Column("gpu", lambda one: _or_dash(one.load and one.load.gpu_use, ".0%"), right=True),
        Column(
            "device",
            lambda one: ", ".join(f"{a.count} x {a.model or a.kind}" for a in one.accelerators) or "-",
        ),
        Column("online", lambda one: _seconds(one.online_s), right=True),
        Column("owner", lambda one: one.owner or "-"),
        Column("address", lambda one: f"{one.address} via {one.via}" if one.via else one.address),
    ),
    Belief: (
        Column("node", lambda one: one.name),
        Column("belief", lambda one: f"{one.belief:.4f}", right=True),
        Column("updates", lambda one: f"{one.updates:,}", right=True),
        Column("updated", lambda one: _time(one.update_time)),
    ),
    Job: (
        Column("job", lambda one: one.id),
        Column("name", lambda one: one.spec.name or "-"),
        Column("task", lambda one: one.spec.task),
        Column("state", _state),
        Column("step", _steps, right=True),
        Column("loss", lambda one: _or_dash(one.progress and one.progress.loss, ".4f"), right=True),
        Column(
            "test",
            lambda one: _metric(one.progress.metric_name, one.progress.metric) if one.progress else "-",
        ),
        Column("submitted", lambda one: _time(one.submit_time)),
    ),
    JobResult: (
        Column("job", lambda one: one.job_id),
        Column("state", _state),
        Column("reason", lambda one: one.reason or "-"),
        Column("test", lambda one: _metric(one.metric_name, one.metric)),
        Column("training", lambda one: _seconds(one.training_s), right=True),
        Column("samples/s", lambda one: _or_dash(one.samples_per_s, ",.0f"), right=True),
        Column("s/step computing", lambda one: _or_dash(one.compute_s_per_step, ".4f"), right=True),
        Column("communicating", lambda one: _or_dash(one.communication_s_per_step, ".4f"), right=True),
        Column("exit status", lambda one: _or_dash(one.exit_status, "d"), right=True),
        Column("model", lambda one: one.model.digest[:12] if one.model else "-"),
    ),
    Model: (
        Column("model", lambda one: one.reference),
        Column("task", lambda one: one.task),
        Column("test", lambda one: _metric(one.metric_name, one.metric)),
        Column("bytes", lambda one: f"{one.size_bytes:,}", right=True),
        Column("job", lambda one: one.job_id),
        Column("created", lambda one: _time(one.create_time)),
        Column("digest", lambda one: one.digest[:12]),
    ),
    NodeAnswer: (
        Column("asked", lambda one: one.name),
        Column("belief", lambda one: f"{one.belief:.4f}", right=True),
        Column("gave", lambda one: f"{one.accepted_slots}/{one.slots}", right=True),
        Column("chosen because", lambda one: one.chosen_because),
        Column("its answer", lambda one: one.reason),
    ),
    Worker: (
        Column("rank", lambda one: str(one.rank), right=True),
        Column("worker", lambda one: one.id),
        Column("node", lambda one: one.node_name),
        Column("end", lambda one: (one.end_reason or "ended") if one.ended else "-"),
    ),
    Session: (
        Column("node", lambda one: one.node_name),
        Column("began", lambda one: _time(one.start_time)),
        Column("length", lambda one: _seconds(one.online_s), right=True),
        Column("end", _session_end),
    ),
    ServiceEndpoint: (
        Column("service", lambda one: one.name),
        Column("healthy", lambda one: "yes" if one.healthy else "no"),
        Column("address", lambda one: one.address),
        Column("detail", lambda one: one.detail or "-"),
    ),
    Policy: (
        Column("policy", str),
        Column("from", lambda one: one.source),
    ),
}
_MORE: Mapping[type, Callable[[Any], Iterable[tuple[str, str]]]] = {
    Node: _more_of_node,
    Belief: _more_of_belief,
    Job: _more_of_job,
}
