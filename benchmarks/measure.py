"""Measurements, and how they are taken."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.intervals import Interval, figure_of, interval_of, ratio_interval_of

T = TypeVar("T")
U = TypeVar("U")
ROOT = Path(__file__).parents[1]
MET, OPEN, MISSED = "met", "open", "missed"


@dataclass(frozen=True)
class Goal:
    """`value` (or, with `of_ratio`, value / rival) must be at least, or at most, `limit`."""

    limit: float
    at_least: bool
    of_ratio: bool = False

    def text(self, unit: str) -> str:
        """The goal as a reader would say it."""
        of_what = " times the rival's" if self.of_ratio else f" {unit}"
        return f"{'at least' if self.at_least else 'at most'} {self.limit:,g}{of_what}"

    def verdict(self, interval: Interval | None) -> str:
        """MET where the whole interval lies on the goal's side, MISSED where none of it does, else OPEN."""
        if interval is None:
            return OPEN
        sides = {end >= self.limit if self.at_least else end <= self.limit for end in interval}
        return OPEN if len(sides) == 2 else MET if sides.pop() else MISSED


@dataclass(frozen=True)
class Measurement:
    """One figure, its 95 % interval, and the rival's of the same run; intervals are None for few samples.

    `statistic` is how figures come from samples (intervals.py); `ratio` is value divided by rival_value;
    `goal_text` says the goal in words, and `verdict` is "" where there is none.
    """

    name: str
    unit: str
    statistic: str
    value: float
    interval: Interval | None
    samples: list[float]
    goal: Goal | None = None
    goal_text: str = ""
    verdict: str = ""
    rival: str = ""
    rival_value: float | None = None
    rival_samples: list[float] = field(default_factory=list)
    ratio: float | None = None
    ratio_interval: Interval | None = None


def measurement(
    name: str,
    unit: str,
    samples: Sequence[float],
    *,
    statistic: str = "median",
    goal: Goal | None = None,
    rival: str = "",
    rival_samples: Sequence[float] = (),
) -> Measurement:
    """The figures of both sides, their ratio, and what the intervals say of the goal."""
    ours, theirs = [_rounded(one) for one in samples], [_rounded(one) for one in rival_samples]
    interval, ratio, ratio_interval = interval_of(statistic, ours), None, None
    rival_value = figure_of(statistic, theirs) if theirs else None
    if rival_value:
        ratio = figure_of(statistic, ours) / rival_value
        ratio_interval = ratio_interval_of(statistic, ours, theirs)
    return Measurement(
        name=name,
        unit=unit,
        statistic=statistic,
        value=_rounded(figure_of(statistic, ours)),
        interval=_both_rounded(interval),
        samples=ours,
        goal=goal,
        goal_text=goal.text(unit) if goal else "",
        verdict=goal.verdict(ratio_interval if goal.of_ratio else interval) if goal else "",
        rival=rival,
        rival_value=None if rival_value is None else _rounded(rival_value),
        rival_samples=theirs,
        ratio=None if ratio is None else _rounded(ratio),
        ratio_interval=_both_rounded(ratio_interval),
    )


def again(kept: dict[str, Any]) -> Measurement:
    """The measurement that a kept one's samples give."""
    return measurement(
        kept["name"],
        kept["unit"],
        kept["samples"],
        statistic=kept["statistic"],
        goal=Goal(**kept["goal"]) if kept["goal"] else None,
        rival=kept["rival"],
        rival_samples=kept["rival_samples"],
    )


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _both_rounded(interval: Interval | None) -> Interval | None:
    return None if interval is None else (_rounded(interval[0]), _rounded(interval[1]))


def let_nodes_import() -> None:
    """Nodes that are started from now on import tasks from here."""
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(path for path in paths if path))


def alternate(rounds: int, ours: Callable[[], T], rival: Callable[[], U]) -> tuple[list[T], list[U]]:
    """A B A B: both sides meet the same machine, warm or cold, quiet or busy."""
    pairs = [(ours(), rival()) for _ in range(rounds)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values don't exceed."""
    return figure_of(f"p{percent}", values)


def print_measurements(measurements: Sequence[Measurement]) -> None:
    """One line each."""
    for one in measurements:
        against = ""
        if one.ratio is not None:
            against = f"; {one.rival}: {one.rival_value:,g}, ratio {one.ratio:g}{_within(one.ratio_interval)}"
        goal = f" (goal: {one.goal_text})" if one.goal else ""
        value = f"{one.value:,g} {one.unit}{_within(one.interval)}"
        print(f"{one.verdict:<6} {one.name}: {value}{goal}{against}", flush=True)


def _within(interval: Interval | None) -> str:
    return f" [{interval[0]:g}, {interval[1]:g}]" if interval else ""
