"""Figures 4 and 5 over emulated networks: time against workers, what the network adds, and a step's parts."""

from collections.abc import Mapping, Sequence
from typing import Any

from peerloom.experiments.pictures.canvas import Mark, canvas, label, marks


def draw(result: Mapping[str, Any]) -> Any:
    """A column a workload: a training's time (Figure 4), what the network adds (Figure 5), communication."""
    workloads: Mapping[str, Any] = result["workloads"]
    figure, axes = canvas(columns=len(workloads), rows=3, size=(6.0, 3.4))
    styles = dict(zip(result["networks"], marks(len(result["networks"])), strict=True))
    for column, (name, workload) in enumerate(workloads.items()):
        times, added, parts = axes[column :: len(workloads)]
        for network, mark in styles.items():
            rows = [row for row in workload["rows"] if row["network"] == network]
            _points(times, rows, "training_s", 1, mark, network)
            _points(parts, rows, "communication_s", 1000, mark, network)
            if rows[0]["added_percent"] is not None:
                _points(added, rows, "added_percent", 1, mark, network)
                _predicted(times, rows, mark)
        parts.axhline(1000 * workload["asked_compute_s"], color="black", linewidth=0.8)
        parts.annotate(
            "computing",
            (0.02, 1000 * workload["asked_compute_s"]),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            fontsize=8,
        )
        label(times, f"{name}: training (thin: predicted)", "workers", "time (s)")
        label(added, f"{name}: added by the network", "workers", "time added (% of one machine)")
        label(parts, f"{name}: communication in a step", "workers", "time (ms)")
        times.legend(fontsize=8, frameon=False)
        for axis in (times, added, parts):
            axis.xaxis.get_major_locator().set_params(integer=True)
        for axis, key, scale in ((times, "training_s", 1), (parts, "communication_s", 1000)):
            axis.set_ylim(0, 1.25 * max(scale * row[key]["mean"] for row in workload["rows"]))
    figure.suptitle(emulated(result), fontsize=10)
    return figure


def emulated(result: Mapping[str, Any]) -> str:
    """What computes here, as a title."""
    name, factor = result["device"]["name"], result["slowdown"]
    return f"Emulated compute: {name}, {factor:g} times slower, on 1/{factor:g} of the data"


def _points(
    axis: Any, rows: Sequence[Mapping[str, Any]], key: str, scale: float, mark: Mark, name: str
) -> None:
    """Means with their intervals; hollow where the emulator fell behind."""
    workers = [row["workers"] for row in rows]
    means = [scale * row[key]["mean"] for row in rows]
    halves = [scale * (row[key]["half"] or 0.0) for row in rows]
    axis.errorbar(
        workers, means, yerr=halves, color=mark.colour, ls=mark.dashes, marker=mark.marker, ms=4, capsize=2,
        linewidth=1.3, elinewidth=0.9, label=name,
    )  # fmt: skip
    late = [(row["workers"], scale * row[key]["mean"]) for row in rows if not row["faithful"]]
    if late:
        axis.plot(
            *zip(*late, strict=True),
            color=mark.colour,
            ls="",
            marker=mark.marker,
            ms=5,
            mfc="white",
            zorder=3,
        )


def _predicted(axis: Any, rows: Sequence[Mapping[str, Any]], mark: Mark) -> None:
    """A training as long as its steps were predicted."""
    seconds = [row["training_s"]["mean"] * row["predicted_step_s"] / row["step_s"]["mean"] for row in rows]
    axis.plot([row["workers"] for row in rows], seconds, color=mark.colour, ls=mark.dashes, linewidth=0.6)
