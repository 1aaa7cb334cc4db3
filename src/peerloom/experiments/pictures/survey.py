"""The survey's seven methods, predicted: speed-ups, step time against bandwidth, and steps event by event."""

from collections.abc import Mapping, Sequence
from typing import Any

from peerloom.experiments.pictures.canvas import canvas, label, marks

_KINDS = {
    "forward": "#5fa8a0",
    "backward": "#0b3c5d",
    "all-reduce": "#c25b12",
    "push": "#c25b12",
    "pull": "#d9a441",
}
_LANES = ("computes", "sends", "receives")


def draw(result: Mapping[str, Any]) -> Any:
    """A panel a model, one of bandwidths, and one for the timelines of four methods."""
    figure, axes = canvas(columns=3, rows=2, size=(5.2, 3.9))
    cells, printed = result["speed_ups"], result["printed"]
    models = list(dict.fromkeys(cell["model"] for cell in cells))
    for axis, model in zip(axes[:3], models, strict=True):
        _speed_ups(
            axis,
            model,
            [cell for cell in cells if cell["model"] == model],
            [one for one in printed if one["model"] == model],
        )
    axes[0].legend(fontsize=7, frameon=False, ncols=2, loc="upper left")
    _bandwidth(axes[3], result["bandwidth"])
    names = list(result["timelines"])
    for axis, chosen in zip(axes[4:], (names[:2], names[2:]), strict=True):
        _timelines(axis, {name: result["timelines"][name] for name in chosen})
    return figure


def _speed_ups(
    axis: Any, model: str, cells: Sequence[Mapping[str, Any]], printed: Sequence[Mapping[str, Any]]
) -> None:
    """Parts of a linear speed-up, so that both sizes fit one axis; a line where the survey's best is."""
    methods = list(cells[0]["one_fitted"])
    width = 0.8 / len(methods)
    for number, (method, mark) in enumerate(zip(methods, marks(len(methods)), strict=True)):
        places = [place + (number - (len(methods) - 1) / 2) * width for place in range(len(cells))]
        parts = [cell["one_fitted"][method] / cell["workers"] for cell in cells]
        axis.bar(places, parts, width, label=method, color=mark.colour, hatch=mark.hatch, edgecolor="white")
    for one in printed:
        place = [cell["workers"] for cell in cells].index(one["workers"])
        height, tallest = one["printed"] / one["workers"], max(cells[place]["one_fitted"].values())
        axis.hlines(height, place - 0.42, place + 0.42, color="#000000", linewidth=1.6)
        above = max(height, tallest / one["workers"]) + 0.02
        axis.annotate(f"printed {one['printed']}", (place, above), ha="center", fontsize=8)
    axis.set_xticks(range(len(cells)), [f"{cell['workers']} workers" for cell in cells])
    axis.set_ylim(0, 1.5)
    label(axis, f"{model}: predicted, one number fitted", "", "speed-up / workers")


def _bandwidth(axis: Any, curve: Mapping[str, Any]) -> None:
    steps: Mapping[str, Sequence[float]] = curve["step_s"]
    for (method, times), mark in zip(steps.items(), marks(len(steps)), strict=True):
        axis.plot(
            curve["gbit_per_s"],
            times,
            label=method,
            color=mark.colour,
            linestyle=mark.dashes,
            marker=mark.marker,
            markersize=4,
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.legend(fontsize=7, frameon=False)
    title = f"{curve['model']}, {curve['workers']} workers: predicted step"
    label(axis, title, "rate between machines (Gbit/s)", "step (s)")


def _timelines(axis: Any, timelines: Mapping[str, Mapping[str, Any]]) -> None:
    """What a worker's processor and link do in one step; messages have the number of their layer."""
    lanes = [(name, lane) for name in timelines for lane in _LANES]
    for name, timeline in timelines.items():
        for one in timeline["intervals"]:
            if (name, one["resource"]) in lanes:
                _interval(axis, lanes.index((name, one["resource"])), one)
    axis.set_yticks(range(len(lanes)), [f"{name}\n{lane}" for name, lane in lanes], fontsize=7)
    axis.invert_yaxis()
    axis.grid(visible=False)
    told = [f"{name} {timeline['step_s']:.2f} s" for name, timeline in timelines.items()]
    label(axis, "a step: " + ", then ".join(told), "time (s); numbers are layers", "")


def _interval(axis: Any, lane: int, one: Mapping[str, Any]) -> None:
    kind, _, layer = one["what"].partition(" ")
    length = one["end_s"] - one["start_s"]
    axis.barh(lane, length, left=one["start_s"], color=_KINDS[kind], edgecolor="white", linewidth=0.6)
    if length > 0.02:
        middle = one["start_s"] + length / 2
        text = layer.replace(" to ", "-")
        axis.text(middle, lane, text, ha="center", va="center", fontsize=6, color="white")
