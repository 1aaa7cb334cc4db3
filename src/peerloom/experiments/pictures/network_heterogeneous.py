"""Figures 7 and 8 over an emulated network: training time by what a round reached."""

from collections.abc import Mapping, Sequence
from typing import Any

from peerloom.experiments import thesis
from peerloom.experiments.emulated_jobs import is_faithful
from peerloom.experiments.pictures.canvas import Mark, canvas, label, marks
from peerloom.experiments.pictures.network_scaling import emulated


def draw(result: Mapping[str, Any]) -> Any:
    """A place for each composition: our rounds, beside the thesis's rounds.

    Hollow where the emulator fell behind.
    """
    workloads: Mapping[str, Any] = result["workloads"]
    figure, axes = canvas(columns=len(workloads), size=(6.0, 3.8))
    ours, theirs = marks(2)
    for axis, (name, workload) in zip(axes, workloads.items(), strict=True):
        reached = [one["kind"] for one in workload["kinds"]]
        printed = [one for one in thesis.ROUNDS_OF_3[name] if one[0] != "none"]
        labels = list(dict.fromkeys([*reached, *(kind for kind, _ in printed)]))
        rows = [row for row in workload["rows"] if row["training_s"] is not None]
        our_points = [(labels.index(row["kind"]), row["training_s"]) for row in rows]
        their_points = [(labels.index(kind), seconds) for kind, seconds in printed]
        _points(axis, our_points, ours, 4, mfc=ours.colour, alpha=0.5, label="ours: one batch for all")
        late = [point for point, row in zip(our_points, rows, strict=True) if not is_faithful(row)]
        _points(axis, late, ours, 5, mfc="white")
        _points(axis, their_points, theirs, 8, mfc="none", label="the thesis's: a batch for each device")
        for one in workload["kinds"]:
            if one["kind"] == "none":
                words = f"{one['rounds']} rounds,\nended after\n{one['seconds']['mean']:.2g} s"
                place = (labels.index("none"), 0)
                axis.annotate(
                    words, place, xytext=(0, 6), textcoords="offset points", ha="center", fontsize=7
                )
        axis.set_xticks(range(len(labels)), [one.replace(" alone", "\nalone") for one in labels], fontsize=8)
        title = f"{name} over {result['network']}, budget {result['budget']}"
        label(axis, title, "devices of the nodes reached", "time of a training (s)")
        axis.set_ylim(bottom=0)
        axis.set_xlim(-0.6, len(labels) - 0.4)
        axis.legend(fontsize=8, frameon=False)
    figure.suptitle(emulated(result), fontsize=10)
    return figure


def _points(axis: Any, points: Sequence[tuple[int, float]], mark: Mark, size: int, **more: Any) -> None:
    if points:
        axis.plot(*zip(*points, strict=True), color=mark.colour, ls="", marker=mark.marker, ms=size, **more)
