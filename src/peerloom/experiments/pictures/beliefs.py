"""Belief over time, with the evidence marked."""

from collections.abc import Mapping, Sequence
from typing import Any

from peerloom.client.types import Belief
from peerloom.errors import FailedPreconditionError
from peerloom.experiments.pictures.canvas import canvas, label, marks

_EVIDENCE = {
    "transfer": ("o", "a model transferred"),
    "training": ("^", "a training finished"),
    "unfinished": ("v", "refused, or not finished"),
    "session_ended": ("s", "left with notice"),
    "interruption": ("X", "interrupted"),
    "lie": ("*", "proven to have lied"),
    "wrong_answer": ("P", "a wrong answer"),
}
_OTHER = ("d", "other evidence")


def draw_beliefs(histories: Mapping[str, Sequence[Belief]]) -> Any:
    """A step line for each node, from its updates in any order; markers say which evidence moved it.

    Raises FailedPreconditionError when no node has any evidence.
    """
    told = {
        name: sorted(updates, key=lambda one: one.updates) for name, updates in histories.items() if updates
    }
    times = [one.update_time for updates in told.values() for one in updates if one.update_time]
    if not times:
        raise FailedPreconditionError(
            f"There is no evidence about {', '.join(histories) or 'any node'} yet: run a job first, such as "
            "peerloom train digits.",
            reason="NO_EVIDENCE",
        )
    figure, (axis,) = canvas(size=(8.0, 4.2))
    unit_s, unit = time_unit((max(times) - min(times)).total_seconds())
    seen: dict[str, tuple[str, str]] = {}
    for (name, updates), mark in zip(told.items(), marks(len(told)), strict=True):
        points = [(one.update_time, one.belief, one.evidence) for one in updates if one.update_time]
        x = [(time - min(times)).total_seconds() / unit_s for time, _, _ in points]
        axis.step(x, [b for _, b, _ in points], where="post", color=mark.colour, ls=mark.dashes, label=name)
        for place, (_, value, evidence) in zip(x, points, strict=True):
            kind = evidence.kind if evidence else "unknown"
            seen[kind] = _EVIDENCE.get(kind, _OTHER)
            axis.plot(
                place, value, marker=seen[kind][0], color=mark.colour, mec="white", mew=0.5, ms=7, ls=""
            )
    label(axis, "Belief over time", f"time since the first evidence ({unit})", "belief (points)")
    _legends(axis, seen)
    return figure


def _legends(axis: Any, seen: Mapping[str, tuple[str, str]]) -> None:
    nodes = axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), title="node")
    axis.add_artist(nodes)
    signs = [
        axis.plot([], [], marker=sign, color="#555555", ls="", label=words)[0]
        for sign, words in seen.values()
    ]
    axis.legend(
        handles=signs,
        fontsize=8,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(1.0, 0.0),
        title="evidence",
    )


def time_unit(span_s: float) -> tuple[float, str]:
    """Seconds in the unit that suits a span, and the unit's name."""
    for unit_s, unit in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if span_s >= 2 * unit_s:
            return unit_s, unit
    return 1.0, "seconds"
