"""Measurements, how they are taken, and the form in which all benchmarks store them."""

import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import psutil

T = TypeVar("T")
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PACKAGES = ("peerloom", "torch", "grpcio", "protobuf", "sqlalchemy", "numpy")


@dataclass(frozen=True)
class Measurement:
    """One figure: the median of our `samples`, its goal in words, and the rival's median in the same run.

    `ratio` is value divided by rival_value; `met` is None where there is no goal.
    """

    name: str
    value: float
    unit: str
    goal: str = ""
    met: bool | None = None
    rival: str = ""
    rival_value: float | None = None
    ratio: float | None = None
    samples: list[float] = field(default_factory=list)


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

    def met(self, value: float, ratio: float | None) -> bool:
        """Whether the goal was reached."""
        judged = ratio if self.of_ratio else value
        assert judged is not None, "a goal against a rival needs the rival's figure"
        return judged >= self.limit if self.at_least else judged <= self.limit


def measurement(
    name: str,
    unit: str,
    samples: Sequence[float],
    *,
    goal: Goal | None = None,
    rival: str = "",
    rival_samples: Sequence[float] = (),
) -> Measurement:
    """The medians of both sides, their ratio, and whether the goal was met."""
    value = statistics.median(samples)
    rival_value = statistics.median(rival_samples) if rival_samples else None
    ratio = value / rival_value if rival_value else None
    return Measurement(
        name=name,
        value=_rounded(value),
        unit=unit,
        goal=goal.text(unit) if goal else "",
        met=goal.met(value, ratio) if goal else None,
        rival=rival,
        rival_value=None if rival_value is None else _rounded(rival_value),
        ratio=None if ratio is None else _rounded(ratio),
        samples=[_rounded(sample) for sample in samples],
    )


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def alternate(rounds: int, ours: Callable[[], T], rival: Callable[[], T]) -> tuple[list[T], list[T]]:
    """A B A B: both sides meet the same machine, warm or cold, quiet or busy."""
    pairs = [(ours(), rival()) for _ in range(rounds)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values don't exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def write_result(name: str, measurements: Sequence[Measurement]) -> None:
    """Stores benchmarks/results/NAME.json."""
    result = {
        "benchmark": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": _machine(),
        "versions": _versions(),
        "measurements": [asdict(one) for one in measurements],
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


def write_profile(name: str, profile: str) -> None:
    """Stores benchmarks/results/NAME.profile.txt, or removes it where no goal was missed."""
    path = RESULTS / f"{name}.profile.txt"
    if profile:
        path.write_text(profile)
    else:
        path.unlink(missing_ok=True)


def print_measurements(measurements: Sequence[Measurement]) -> None:
    """One line each."""
    marks = {None: "      ", True: "met   ", False: "missed"}
    for one in measurements:
        against = f"; {one.rival}: {one.rival_value:,g}, ratio {one.ratio:g}" if one.ratio is not None else ""
        goal = f" (goal: {one.goal})" if one.goal else ""
        print(f"{marks[one.met]} {one.name}: {one.value:,g} {one.unit}{goal}{against}", flush=True)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _commit() -> str:
    changed = _git(
        "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results", ":!docs"
    )
    return _git("rev-parse", "--short=12", "HEAD").strip() + ("+changes" if changed.strip() else "")


def _machine() -> dict[str, Any]:
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
