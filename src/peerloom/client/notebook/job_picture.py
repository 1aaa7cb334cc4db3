"""A job's loss and metric over its steps as SVG, with workers that were lost and nodes that joined."""

import math
from collections.abc import Sequence

from peerloom.client.curves import Curves
from peerloom.client.notebook.html_tables import words
from peerloom.client.types.events import (
    EpochFinished,
    GenerationFormed,
    JobEvent,
    StateChanged,
    StepCommitted,
    WorkerLost,
)

WIDTH, HEIGHT, MARGIN = 640, 200, 8
MARK_LIMIT = 200
_BLUE, _ORANGE, _RED, _GREEN = "#2a6fdb", "#d9822b", "#c0392b", "#2e8b57"
Point = tuple[float, float]


class JobPicture:
    """Takes a job's events in their order; `html` is what they come to."""

    def __init__(self, job_id: str) -> None:
        self._id, self._state, self._total = job_id, "queued", 0
        self._curve = Curves(("loss",))
        self._metrics: list[Point] = []
        self._metric, self._speed, self._loss = "", "", ""
        self._marks: list[tuple[int, str, str]] = []
        self._members: set[str] | None = None

    def apply(self, event: JobEvent) -> None:
        """Takes an event."""
        match event:
            case StateChanged():
                self._state = str(event).replace("_", " ")
            case StepCommitted():
                self._step(event)
            case EpochFinished():
                self._metrics = [point for point in self._metrics if point[0] < self._curve.last_step]
                self._metrics.append((self._curve.last_step, event.metric))
                self._metric = f"{event.metric_name} {event.metric:.4f}"
            case WorkerLost():
                (self._members or set()).discard(event.worker.id)
                self._mark(_RED, str(event))
            case GenerationFormed():
                self._generation(event)

    def html(self) -> str:
        """A line of figures above the picture; only the line while there are no steps."""
        step = f"step {self._curve.last_step:,}" if self._curve.last_step else ""
        step += f" of {self._total:,}" if step and self._total else ""
        figures = [one for one in (step, self._loss, self._metric, self._speed) if one]
        head = f"<b>{words(self._id)}</b> {words(self._state)}"
        line = f"<p>{head}{''.join(f' &middot; {words(one)}' for one in figures)}</p>"
        return f"<div>{line}{self._svg()}</div>"

    def _step(self, event: StepCommitted) -> None:
        self._total = event.total_steps or self._total
        self._loss, self._speed = f"loss {event.loss:.4f}", f"{event.samples_per_s:,.0f} samples/s"
        self._curve.add(event.step, {"loss": event.loss})

    def _generation(self, event: GenerationFormed) -> None:
        now = {worker.id: worker.node_name for worker in event.workers}
        for node in sorted({name for key, name in now.items() if key not in (self._members or now)}):
            self._mark(_GREEN, f"{node} joined generation {event.generation}")
        self._members = set(now)

    def _mark(self, colour: str, text: str) -> None:
        self._marks.append((self._curve.last_step, colour, text))
        del self._marks[:-MARK_LIMIT]

    def _svg(self) -> str:
        columns = self._curve.columns()
        losses = [
            point for point in zip(columns["step"], columns["loss"], strict=True) if math.isfinite(point[1])
        ]
        if not losses:
            return ""
        last = max(self._total, self._curve.last_step)
        marks = "".join(_vertical(at, last, colour, text) for at, colour, text in self._marks)
        finite = [point for point in self._metrics if math.isfinite(point[1])]
        lines = _line(losses, last, _BLUE, "loss") + _line(finite, last, _ORANGE, self._metric)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" style="max-width:100%">'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#8888"/>{marks}{lines}</svg>'
        )


def _line(points: Sequence[Point], last: float, colour: str, name: str) -> str:
    """A line over the whole height, from its own least to its own greatest value."""
    if not points:
        return ""
    low, high = min(y for _, y in points), max(y for _, y in points)
    span = (high - low) or 1.0
    room = HEIGHT - 2 * MARGIN
    places = [(_across(x, last), HEIGHT - MARGIN - room * (y - low) / span) for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in places[-1:])
    title = f"<title>{words(name)}: {low:.4g} to {high:.4g}</title>"
    return f'<g>{title}<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>{dots}</g>'


def _vertical(at: int, last: float, colour: str, text: str) -> str:
    x = f"{_across(at, last):.1f}"
    title = f"<title>{words(text)}</title>"
    return f'<line x1="{x}" x2="{x}" y1="0" y2="{HEIGHT}" stroke="{colour}">{title}</line>'


def _across(step: float, last: float) -> float:
    return MARGIN + (WIDTH - 2 * MARGIN) * step / max(1.0, last)
