"""What the docs quote of benchmarks is what results say now: what is measured anew is told anew."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.intervals import interval_of

ROOT = Path(__file__).parents[2]
# The former is made of the results; decisions and changes tell what was seen then.
MADE = {"benchmarks.md", "experiments.md"}
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in MADE),
]
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_INTERVAL = re.compile(r"\[(-?[\d,]+(?:\.\d+)?), (-?[\d,]+(?:\.\d+)?)\]")
Interval = tuple[float, float]


def published() -> Iterator[Interval]:
    """All intervals of committed results, and their rivals'; also turned round, as "so much less"."""
    for file in (ROOT / "benchmarks" / "results").glob("*.json"):
        for one in json.loads(file.read_text())["measurements"]:
            rivals = interval_of(one["statistic"], one["rival_samples"]) if one.get("rival_samples") else None
            for interval in (one["interval"], one.get("ratio_interval"), rivals):
                if interval is not None:
                    low, high = interval
                    yield from ((low, high), (-high, -low))


def is_rounded(quoted: tuple[str, str], interval: Interval) -> bool:
    """Whether both ends are told with the digits that are quoted."""
    ends = [(float(text.replace(",", "")), len(text.partition(".")[2])) for text in quoted]
    return all(
        abs(told - found) <= 0.5 * 10**-digits + 1e-9
        for (told, digits), found in zip(ends, interval, strict=True)
    )


@pytest.fixture(scope="module")
def intervals() -> list[Interval]:
    return list(published())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_quoted_intervals_are_those_of_the_results(page: Path, intervals: list[Interval]) -> None:
    quoted = _INTERVAL.findall(_FENCED.sub("", page.read_text()))
    stale = [one for one in quoted if not any(is_rounded(one, interval) for interval in intervals)]
    assert stale == [], "look these up in docs/benchmarks.md"


def test_a_figure_that_nobody_measured_is_found(intervals: list[Interval]) -> None:
    low, high = intervals[0]
    assert any(is_rounded((f"{low:.1f}", f"{high:.1f}"), one) for one in intervals)
    assert not any(is_rounded(("123456.7", "765432.1"), one) for one in intervals)
