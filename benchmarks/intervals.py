"""What samples say beside their middle: the interval in which a figure would lie if it were measured again.

Percentile bootstrap (Efron, Annals of Statistics 1979): the samples are drawn anew, with repetition,
RESAMPLES times, always by the same chance, so that whoever reads a result finds the same interval. Where both
sides ran in turn, a pair is drawn as a pair: what made the machine slow then made both slow.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
COVERAGE = 0.95
LEAST_SAMPLES = 5  # of fewer the extremes of what is drawn are the samples themselves
EXACT = "exact"  # counted or computed, not timed: it would be the same again
Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]


def statistic_of(name: str) -> Callable[[Floats], Floats]:
    """Rows to one figure each: "median", "mean", "exact" (of one sample), or "p99" and the like.

    A percentile is the smallest value that at least so many percent of all values don't exceed.
    """
    if name in ("median", EXACT):
        return lambda rows: np.median(rows, axis=1)
    if name == "mean":
        return lambda rows: np.mean(rows, axis=1)
    percent = float(name.removeprefix("p"))
    return lambda rows: np.sort(rows, axis=1)[:, max(0, math.ceil(rows.shape[1] * percent / 100) - 1)]


def figure_of(name: str, samples: Sequence[float]) -> float:
    """The statistic of the samples."""
    return float(statistic_of(name)(np.array([samples], dtype=np.float64))[0])


def interval_of(name: str, samples: Sequence[float]) -> Interval | None:
    """Where the statistic lies in 95 of 100 cases; None for too few samples."""
    if name == EXACT:
        return (samples[0], samples[0])
    if len(samples) < LEAST_SAMPLES:
        return None
    return _middle(_drawn(name, np.array(samples), _places(len(samples))))


def ratio_interval_of(name: str, samples: Sequence[float], others: Sequence[float]) -> Interval | None:
    """Where ours divided by theirs lies; None for too few samples or a rival of 0."""
    if name == EXACT:
        return (samples[0] / others[0],) * 2 if others[0] else None
    if min(len(samples), len(others)) < LEAST_SAMPLES:
        return None
    places = _places(len(samples))
    paired = places if len(samples) == len(others) else _places(len(others), seed=1)
    theirs = _drawn(name, np.array(others), paired)
    return _middle(_drawn(name, np.array(samples), places) / theirs) if theirs.all() else None


def _places(count: int, seed: int = 0) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, count, (RESAMPLES, count))


def _drawn(name: str, samples: Floats, places: npt.NDArray[np.int64]) -> Floats:
    return statistic_of(name)(samples[places].astype(np.float64))


def _middle(figures: Floats) -> Interval:
    aside = 100 * (1 - COVERAGE) / 2
    low, high = np.percentile(figures, [aside, 100 - aside])
    return float(low), float(high)
