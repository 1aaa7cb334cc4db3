"""By how much something grows in an hour, from what was read of it while it lived; pure functions.

Theil's incomplete method (Theil 1950): the n readings of a life are paired, each of the first half with the
one n / 2 later, and each pair gives a slope. No two pairs share a reading, so the slopes are samples like any
other: their median is the growth, and the interval comes by bootstrap (intervals.py). Single readings that
are far off, and lives that begin at another level, move neither.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.measure import Goal, Measurement, measurement

HOUR_S = 3600.0


@dataclass(frozen=True)
class Reading:
    """A value at a time (seconds)."""

    at_s: float
    value: float


def settled(life: Sequence[Reading], warm_up_s: float) -> list[Reading]:
    """What was read of a life after its first seconds, in which whatever starts fills its memory."""
    return [one for one in life if one.at_s - life[0].at_s >= warm_up_s]


def in_blocks(life: Sequence[Reading], block_s: float) -> list[Reading]:
    """One reading for each block of seconds: the medians of its times and of its values."""
    blocks = dict[int, list[Reading]]()
    for one in life:
        blocks.setdefault(int((one.at_s - life[0].at_s) // block_s), []).append(one)
    return [
        Reading(median(one.at_s for one in block), median(one.value for one in block))
        for block in blocks.values()
    ]


def pair_slopes(points: Sequence[tuple[float, float]]) -> list[float]:
    """The slope of each pair of points (x, y) that are half of them apart; none for fewer than two."""
    half = len(points) // 2
    pairs = zip(points[:half], points[len(points) - half :], strict=True)
    return [(late_y - early_y) / (late_x - early_x) for (early_x, early_y), (late_x, late_y) in pairs]


def slopes(life: Sequence[Reading]) -> list[float]:
    """Growth an hour of each pair of readings that are half a life apart."""
    return [slope * HOUR_S for slope in pair_slopes([(one.at_s, one.value) for one in life])]


def growth(
    what: str,
    unit: str,
    lives: Iterable[Sequence[Reading]],
    bound: float,
    *,
    warm_up_s: float,
    block_s: float,
) -> Measurement | None:
    """The growth an hour over all lives, beside `bound`; None where no life was long enough to tell."""
    samples = [
        slope
        for life in lives
        if (rest := settled(life, warm_up_s))
        for slope in slopes(in_blocks(rest, block_s))
    ]
    goal = Goal(bound, at_least=False)
    return measurement(what, f"{unit} an hour", samples, goal=goal) if samples else None
