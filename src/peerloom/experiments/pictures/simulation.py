"""Pictures of a simulation's JSON: regret over rounds, hit rate against budget, whom the rounds hit."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from peerloom.errors import DataLossError
from peerloom.experiments.pictures.canvas import bars, canvas, label, marks

_MARKED_ROUNDS = 8
_PANELS_A_ROW = 2
_MOST_BARS = 90
_APART = 0.06  # of a budget: policies with the same rate lie beside each other


def draw_regret(report: Mapping[str, Any]) -> Any:
    """Mean regret up to each round, a line a policy; a panel for each budget. Raises DataLossError."""
    return _of_report(report, _regret)


def draw_hit_rates(report: Mapping[str, Any]) -> Any:
    """Rounds that reached compute against the budget, a line a policy. Raises DataLossError."""
    return _of_report(report, _hit_rates)


def draw_hits(report: Mapping[str, Any]) -> Any:
    """How often each host gave compute, a panel for each budget. Raises DataLossError."""
    return _of_report(report, _hits)


def _of_report(report: Mapping[str, Any], draw: Callable[[Mapping[str, Any]], Any]) -> Any:
    try:
        return draw(report)
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise DataLossError(
            f"This isn't the result of a simulation ({type(error).__name__}: {error}). Make one with: "
            "peerloom simulate -o json > FILE.json"
        ) from None


def _budgets(report: Mapping[str, Any]) -> list[int]:
    return sorted({one["budget"] for one in report["reports"]})


def _regret(report: Mapping[str, Any]) -> Any:
    budgets = _budgets(report)
    columns = min(_PANELS_A_ROW, len(budgets))
    figure, axes = canvas(columns, math.ceil(len(budgets) / columns), size=(5.2 if columns > 1 else 7.0, 4.0))
    for axis in axes[len(budgets) :]:
        axis.set_visible(False)
    for axis, budget in zip(axes, budgets, strict=False):
        mine = [one for one in report["reports"] if one["budget"] == budget]
        for one, mark in zip(mine, marks(len(mine)), strict=True):
            rounds = one["regret_rounds"]
            percent = [None if part is None else 100 * part for part in one["regret_over_rounds"]]
            axis.plot(
                rounds,
                percent,
                color=mark.colour,
                ls=mark.dashes,
                marker=mark.marker,
                markevery=max(1, len(rounds) // _MARKED_ROUNDS),
                ms=5,
                label=one["policy"],
            )
        axis.axhline(0, color="black", linewidth=0.8)
        title = f"Regret, {report['population']}, budget {budget}, mean of {len(report['seeds'])} seeds"
        label(axis, title, "rounds so far (jobs)", "work missed (% of the oracle's)")
    axes[columns - 1].legend(
        fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), title="policy"
    )
    return figure


def _hit_rates(report: Mapping[str, Any]) -> Any:
    budgets = _budgets(report)
    names = list(dict.fromkeys(one["policy"] for one in report["reports"]))
    figure, (axis,) = canvas(size=(7.4, 4.0))
    for number, (name, mark) in enumerate(zip(names, marks(len(names)), strict=True)):
        beside = _APART * (number - (len(names) - 1) / 2)
        mine = {
            one["budget"]: one["figures"]["reached"] for one in report["reports"] if one["policy"] == name
        }
        axis.errorbar(
            [budget + beside for budget in budgets],
            [100 * mine[budget]["mean"] for budget in budgets],
            yerr=[100 * (mine[budget]["half_width"] or 0.0) for budget in budgets],
            color=mark.colour,
            ls=mark.dashes,
            marker=mark.marker,
            capsize=3,
            label=name,
        )
    title = f"Hit rate against budget, {report['population']} ({len(report['seeds'])} seeds, bars: 95 %)"
    label(axis, title, "budget (requests a round)", "rounds that reached compute (%)")
    axis.set_xticks(budgets)
    axis.set_xlim(budgets[0] - 0.5, budgets[-1] + 0.5)
    axis.set_ylim(0, 105)
    axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), title="policy")
    return figure


def _hits(report: Mapping[str, Any]) -> Any:
    """Most often hit first; of many hosts as many as there is room for."""
    budgets, seeds = _budgets(report), len(report["seeds"])
    figure, axes = canvas(rows=len(budgets), size=(9.0, 3.0))
    for axis, budget in zip(axes, budgets, strict=True):
        mine = {one["policy"]: one["hits"] for one in report["reports"] if one["budget"] == budget}
        if any(hits is None for hits in mine.values()):
            raise ValueError("a simulation of more than 1,000 nodes doesn't tell who was hit")
        hosts = _hosts(list(mine.values()), max(5, _MOST_BARS // len(mine)))
        series: dict[str, Sequence[float | None]] = {
            policy: [hits.get(host, 0) / seeds for host in hosts] for policy, hits in mine.items()
        }
        bars(axis, hosts, series)
        title = f"Hits, {report['population']}, budget {budget}: the {len(hosts)} most often hit nodes"
        label(axis, title, "node (number)", f"rounds of {report['rounds']:,} (mean)")
        axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), title="policy")
    return figure


def _hosts(hits: Sequence[Mapping[str, int]], most: int) -> list[str]:
    total: dict[str, int] = {}
    for one in hits:
        for host, count in one.items():
            total[host] = total.get(host, 0) + count
    return sorted(total, key=lambda host: (-total[host], int(host)))[:most]
