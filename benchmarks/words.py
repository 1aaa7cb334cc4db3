"""Figures as docs/benchmarks.md writes them."""

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.measure import MISSED, OPEN

# How figures begin by which a rival's best setting was found: they are in the table, and not in the picture.
SWEEP = "sweep: "


def figure(value: float) -> str:
    """Three digits are what a benchmark is good for."""
    if not value:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def within(interval: Sequence[float] | None) -> str:
    """The interval in brackets; nothing for none, or for what is exact."""
    if not interval or interval[0] == interval[1]:
        return ""
    return f" [{figure(interval[0])}, {figure(interval[1])}]"


def verdict_of(one: dict[str, Any]) -> str:
    """A measurement's goal, and whether it was met where the samples say it."""
    goal: str = one.get("goal_text", one["goal"]) or "-"
    if verdict := one.get("verdict", ""):
        goal += f": **{verdict}**" if verdict in (MISSED, OPEN) else f": {verdict}"
    return goal
