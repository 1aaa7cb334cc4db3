"""The system beside one node alone."""

from collections.abc import Mapping
from typing import Any

from peerloom.experiments.pictures.canvas import bars, canvas, label


def draw(result: Mapping[str, Any]) -> Any:
    """Two bars a round and workload: all that the budget reached, and one slot of one node."""
    workloads: Mapping[str, Any] = result["workloads"]
    figure, axes = canvas(columns=len(workloads), size=(4.8, 3.6))
    for axis, (name, workload) in zip(axes, workloads.items(), strict=True):
        rows = workload["rows"]
        most = max(row["system"]["workers"] for row in rows)
        series = {
            f"the system, up to {most} workers": [row["system"]["training_s"] for row in rows],
            "one node, one worker": [row["one_node"]["training_s"] for row in rows],
        }
        bars(axis, [str(row["round"]) for row in rows], series)
        cores = result["machine"]["cores"]
        label(axis, f"{name} ({cores} cores in all)", "round (number)", "time in steps (s)")
        axis.set_ylim(top=1.25 * axis.get_ylim()[1])
        axis.legend(fontsize=8, frameon=False)
    return figure
