"""Figures 7 and 8: training time by what a round reached."""

from collections.abc import Mapping
from typing import Any

from peerloom.experiments.heterogeneous import composition
from peerloom.experiments.pictures.canvas import canvas, label, marks


def draw(result: Mapping[str, Any]) -> Any:
    """One bar a round, labelled with the slots of the nodes that were reached; rounds without compute are
    marked.
    """
    workloads: Mapping[str, Any] = result["workloads"]
    figure, axes = canvas(columns=len(workloads), size=(5.2, 3.6))
    trained, ended = marks(2)
    for axis, (name, workload) in zip(axes, workloads.items(), strict=True):
        rows = workload["rows"]
        for row in rows:
            if row["training_s"] is not None:
                axis.bar(row["round"], row["training_s"], 0.6, color=trained.colour)
            else:
                axis.plot(row["round"], 0, marker="x", color=ended.colour, markersize=9, mew=2, clip_on=False)
                axis.annotate(
                    f"no compute,\nended after\n{row['whole_s']:.2g} s",
                    (row["round"], 0),
                    xytext=(0, 10),
                    textcoords="offset points",
                    ha="center",
                    fontsize=7,
                )
        axis.set_xticks([row["round"] for row in rows], [composition(row) for row in rows])
        label(
            axis,
            f"{name}, budget {result['budget']}",
            "slots of the nodes reached, a bar a round (count)",
            "time in steps (s)",
        )
        axis.set_xlim(rows[0]["round"] - 0.6, rows[-1]["round"] + 0.6)
        axis.set_ylim(bottom=0)
    return figure
