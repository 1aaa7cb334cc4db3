"""Figures 4 and 5: time against workers, and what the network adds."""

from collections.abc import Mapping
from typing import Any

from peerloom.experiments.pictures.canvas import canvas, label, marks

_KINDS = (("network", "a node each"), ("one_machine", "one machine"))


def draw(result: Mapping[str, Any]) -> Any:
    """Time in steps on the left (Figure 4), added percentage on the right (Figure 5)."""
    figure, (times, added) = canvas(columns=2)
    workloads: Mapping[str, Any] = result["workloads"]
    styles = iter(marks(2 * len(workloads)))
    for name, workload in workloads.items():
        workers = [row["workers"] for row in workload["rows"]]
        for kind, words in _KINDS:
            mark = next(styles)
            seconds = [row[kind]["training_s"] for row in workload["rows"]]
            times.plot(
                workers,
                seconds,
                color=mark.colour,
                ls=mark.dashes,
                marker=mark.marker,
                label=f"{name}, {words}",
            )
    for (name, workload), mark in zip(workloads.items(), marks(2 * len(workloads))[::2], strict=True):
        points = [(row["workers"], row["added_percent"]) for row in workload["rows"]]
        added.plot(
            *zip(*points, strict=True), color=mark.colour, ls=mark.dashes, marker=mark.marker, label=name
        )
    added.axhline(0, color="black", linewidth=0.8)
    cores = result["machine"]["cores"]
    label(times, f"Time against workers ({cores} cores)", "workers (processes)", "time in steps (s)")
    label(added, "Added by going over nodes", "workers (processes)", "time added (% of one machine)")
    times.set_ylim(bottom=0)
    for axis in (times, added):
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.legend(fontsize=8, frameon=False)
    return figure
