"""Accuracy beside workers that lie: a panel for each number of owners, a bar for each rule and attack."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from peerloom.experiments.pictures.canvas import bars, canvas, label


def draw(result: Mapping[str, Any]) -> Any:
    """Mean accuracies over the seeds, with bars from the worst seed to the best."""
    rows = result["rows"]
    numbers = sorted({row["workers"] for row in rows})
    attacks, rules = (list(dict.fromkeys(row[key] for row in rows)) for key in ("attack", "rule"))
    figure, axes = canvas(rows=len(numbers), size=(9.0, 3.0))
    for axis, workers in zip(axes, numbers, strict=True):
        found = {(row["rule"], row["attack"]): row for row in rows if row["workers"] == workers}
        hostile = max(row["hostile"] for row in found.values())
        series, spans = {}, {}
        for rule in rules:
            accuracies = [found[rule, attack]["accuracies"] for attack in attacks]
            means = [fmean(each) for each in accuracies]
            series[rule] = means
            below = [mean - min(each) for mean, each in zip(means, accuracies, strict=True)]
            above = [max(each) - mean for mean, each in zip(means, accuracies, strict=True)]
            spans[rule] = [below, above]
        bars(axis, attacks, series, spans)
        label(axis, f"{hostile} of {workers} owners hostile", "", "accuracy on test digits")
        axis.set_ylim(0, 1)
    axes[0].legend(fontsize=8, frameon=False, ncols=len(rules), loc="lower center", bbox_to_anchor=(0.5, 1.1))
    return figure
