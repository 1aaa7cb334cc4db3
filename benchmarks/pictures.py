"""Pictures for docs/benchmarks.md: a question each, as wide as a laptop's page.

Rows of one unit share an axis; a filled dot is ours, with its interval and single runs, a hollow one a
rival's.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import fill, wrap
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

WIDTH_IN, ROW_IN, AXIS_IN = 9.6, 0.36, 0.75
LABEL_CHARACTERS = 52
LOGARITHMIC_FROM = 20.0  # times the least value: farther apart, the small ones can't be told from nothing
OURS, RIVALS, GOALS = "#1f6f8b", "#b0552f", "#8a8a8a"
NETWORKS = {"csma": "#1f6f8b", "wan": "#5a9e6f", "netem": "#7a5ca8", "bare bridge": RIVALS}
RIVAL_SYSTEMS = ("torchrun", "torchft")
Measured = Mapping[str, Any]


def draw_rows(shown: Sequence[Measured], path: Path) -> None:
    """An axis for each unit, a row for each figure; one that stands alone in its unit says nothing drawn."""
    by_unit = [list(rows) for _, rows in groupby(sorted(shown, key=_unit), _unit)]
    units = [rows for rows in by_unit if len(rows) > 1 or rows[0]["rival_value"]] or by_unit
    heights = [_row_in(rows) * len(rows) + AXIS_IN for rows in units]
    picture, axes = pyplot.subplots(
        len(units), 1, figsize=(WIDTH_IN, sum(heights)), height_ratios=heights, squeeze=False
    )
    for axis, rows in zip(axes.flat, units, strict=True):
        _draw_unit(axis, rows)
    _keep(picture, path)


def _row_in(rows: Sequence[Measured]) -> float:
    """A row's height in inches: two lines of a name fit into the usual one."""
    lines = max(len(wrap(one["name"], LABEL_CHARACTERS)) for one in rows)
    return ROW_IN * max(1.0, lines / 2)


def _unit(one: Measured) -> str:
    unit: str = one["unit"]
    return unit


def _draw_unit(axis: Any, rows: Sequence[Measured]) -> None:
    values = [abs(v) for one in rows for v in (one["value"], one["rival_value"]) if v]
    if values and max(values) > LOGARITHMIC_FROM * min(values) and all(one["value"] > 0 for one in rows):
        axis.set_xscale("log")
        axis.get_xaxis().set_major_formatter("{x:g}")
    else:
        axis.set_xlim(min([0.0, *(one["value"] for one in rows)]), 1.08 * max([*values, 1e-9]))
    for place, one in enumerate(rows):
        _draw_row(axis, place, one)
    axis.set_yticks(range(len(rows)), [fill(one["name"], LABEL_CHARACTERS) for one in rows], fontsize=7)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlabel(_unit(rows[0]) or "share or count", fontsize=8)
    _plain(axis)


def _draw_row(axis: Any, place: int, one: Measured) -> None:
    if (goal := one["goal"]) and isinstance(goal, dict) and not goal["of_ratio"] and goal["limit"]:
        axis.plot([goal["limit"]], [place], "|", color=GOALS, markersize=14, markeredgewidth=1.5)
    axis.plot(one["samples"], [place] * len(one["samples"]), ".", color=GOALS, markersize=2)
    if interval := one.get("interval"):
        axis.plot(interval, [place, place], color=OURS, linewidth=2)
    is_rival = one["name"].startswith(RIVAL_SYSTEMS)
    colour, filled = (RIVALS, "none") if is_rival else (OURS, OURS)
    axis.plot([one["value"]], [place], "o", color=colour, markerfacecolor=filled, markersize=6)
    if one["rival_value"] is not None:
        axis.plot([one["rival_value"]], [place], "o", color=RIVALS, markerfacecolor="none", markersize=6)


_OVER_A_NETWORK = re.compile(r"(.+), (csma|wan|netem), MTU (\d+), 5 hosts of 20 nodes")


def draw_networks(shown: Iterable[Measured], path: Path) -> None:
    """What five hosts get of each emulated network against the MTU, a line a network."""
    lines: dict[str, dict[str, dict[int, float]]] = {}
    for one in shown:
        if found := _OVER_A_NETWORK.fullmatch(one["name"]):
            title = f"{found[1]} ({one['unit']})"
            lines.setdefault(title, {}).setdefault(found[2], {})[int(found[3])] = one["value"]
            if one["rival_value"] is not None:
                lines[title].setdefault(one["rival"], {})[int(found[3])] = one["rival_value"]
    columns = math.ceil(len(lines) / 2)
    picture, axes = pyplot.subplots(2, columns, figsize=(WIDTH_IN, 6), squeeze=False)
    for axis, (title, networks) in zip(axes.flat, lines.items(), strict=False):
        for network, by_mtu in networks.items():
            axis.plot(list(by_mtu), list(by_mtu.values()), "o-", label=network, color=NETWORKS[network])
        axis.set(xscale="log", yscale="log")
        axis.set_xticks(sorted({mtu for by_mtu in networks.values() for mtu in by_mtu}))
        axis.get_xaxis().set_major_formatter("{x:.0f}")
        axis.set_title(title, fontsize=9, loc="left")
        axis.set_xlabel("MTU (bytes)", fontsize=8)
        axis.legend(fontsize=7, frameon=False)
        _plain(axis)
    _keep(picture, path)


_OF_A_POLICY = re.compile(r"(\S+): (.+), (\S+)")


def draw_policies(shown: Iterable[Measured], path: Path) -> None:
    """Policies as dots with intervals: an axis a metric, a row a population, a colour a policy."""
    found = [(m, one) for one in shown if (m := _OF_A_POLICY.fullmatch(one["name"])) and m[2] == one["unit"]]
    metrics = list(dict.fromkeys(m[2] for m, _ in found))
    policies = list(dict.fromkeys(m[3] for m, _ in found))
    populations = list(dict.fromkeys(m[1] for m, _ in found))
    rows = math.ceil(len(metrics) / 2)
    picture, axes = pyplot.subplots(
        rows, 2, figsize=(WIDTH_IN, 0.55 * len(populations) * rows), sharey=True, squeeze=False
    )
    for m, one in found:
        place = policies.index(m[3])
        y = populations.index(m[1]) + 0.09 * (place - (len(policies) - 1) / 2)
        axis, colour = axes.flat[metrics.index(m[2])], f"C{place}"
        if interval := one.get("interval"):
            axis.plot(interval, [y, y], color=colour, linewidth=1)
        label = m[3] if m[1] == populations[0] and m[2] == metrics[0] else None
        axis.plot([one["value"]], [y], "o", color=colour, markersize=3.5, label=label)
    for axis, metric in zip(axes.flat, metrics, strict=False):
        axis.set_title(metric, fontsize=9, loc="left")
        axis.set_yticks(range(len(populations)), populations)
        axis.set_ylim(len(populations) - 0.5, -0.5)
        _plain(axis)
    picture.legend(fontsize=7, frameon=False, ncols=len(policies), loc="upper center")
    _keep(picture, path, top=0.97)


def _plain(axis: Any) -> None:
    axis.minorticks_off()
    axis.tick_params(labelsize=7)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _keep(picture: Any, path: Path, top: float = 1.0) -> None:
    picture.tight_layout(rect=(0, 0, 1, top))
    # Without the version in it, the same figures give the same file.
    picture.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(picture)
