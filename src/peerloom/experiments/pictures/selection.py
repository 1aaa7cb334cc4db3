"""Figure 6: hits of each node with compute, and rounds that reached any, by budget; ours and the thesis's."""

from collections.abc import Mapping, Sequence
from typing import Any

from peerloom.experiments import thesis
from peerloom.experiments.pictures.canvas import bars, canvas, label

_BUDGET, _HITS = "budget (requests a round)", "rounds that hit the node"


def draw(result: Mapping[str, Any]) -> Any:
    """Hits of our live nodes, of simulated ones where there are, of the thesis's; and who reached compute."""
    simulated: Sequence[Mapping[str, Any]] = result["simulated"]
    figure, axes = canvas(columns=2, rows=2, size=(5.0, 3.5)) if simulated else canvas(columns=3)
    reached, *hits = axes
    rows = result["rows"]
    budgets = [row["budget"] for row in rows]
    names = list(rows[0]["hits"])
    _hits(hits[0], budgets, {name: [row["hits"][name] for row in rows] for name in names})
    label(hits[0], f"Ours, live, policy {result['policy']}", _BUDGET, _HITS)
    if simulated:
        _simulated_hits(hits[1], simulated)
        title = f"Ours, simulated (bars: 95 % of {result['repeats']:,} repeats)"
        label(hits[1], title, _BUDGET, _HITS)
    known = [budget for budget in budgets if budget in thesis.HITS]
    columns = {f"node-{node}": [thesis.HITS[b][i] for b in known] for i, node in enumerate(thesis.GPUS)}
    _hits(hits[-1], known, columns)
    label(hits[-1], "The thesis, Figure 6", _BUDGET, _HITS)
    highest = max(axis.get_ylim()[1] for axis in hits)
    for axis in hits:
        axis.set_ylim(0, 1.25 * highest)  # room for the legend
    _reached(reached, result)
    return figure


def _simulated_hits(axis: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    names = list(rows[0]["hits"])
    means = {name: [row["hits"][name]["mean"] for row in rows] for name in names}
    errors = {name: _errors([row["hits"][name] for row in rows]) for name in names}
    _hits(axis, [row["budget"] for row in rows], means, errors)


def _errors(spreads: Sequence[Mapping[str, float]], part: float = 1.0) -> list[list[float]]:
    """Lengths of error bars below and above the mean, times `part`."""
    below = [part * (one["mean"] - one["low"]) for one in spreads]
    return [below, [part * (one["high"] - one["mean"]) for one in spreads]]


def _hits(axis: Any, budgets: list[int], series: dict[str, Any], errors: Any = None) -> None:
    if budgets:
        bars(axis, [str(budget) for budget in budgets], series, errors)
        axis.legend(fontsize=7, frameon=False, ncols=3, loc="upper left")


def _reached(axis: Any, result: Mapping[str, Any]) -> None:
    rounds, rows, simulated = result["rounds"], result["rows"], result["simulated"]
    part = 100 / rounds
    series: dict[str, list[float | None]] = {"ours, live": [part * row["reached"] for row in rows]}
    below = [part * (row["reached"] - row["reached_least"]) for row in rows]
    above = [part * (row["reached_most"] - row["reached"]) for row in rows]
    errors: dict[str, list[list[float]]] = {"ours, live": [below, above]}
    if simulated:
        series["ours, simulated"] = [part * row["reached"]["mean"] for row in simulated]
        errors["ours, simulated"] = _errors([row["reached"] for row in simulated], part)
    known = [thesis.REACHED.get(row["budget"]) for row in rows]
    series["the thesis"] = [None if count is None else 100 * count / thesis.ROUNDS for count in known]
    bars(axis, [str(row["budget"]) for row in rows], series, errors)
    words = f"rounds (% of {rounds}; bars live: range of {result['systems']})"
    label(axis, "Rounds that reached compute", _BUDGET, words)
    axis.set_ylim(0, 125)
    axis.set_yticks(range(0, 101, 20))
    axis.legend(fontsize=7, frameon=False, loc="upper left", ncols=3)
