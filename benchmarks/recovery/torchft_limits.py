"""The two limits of torchft that decide how long a fault holds it up, and the search for its best.

Survivors wait for a collective with the dead up to the one, the lighthouse for stragglers up to the other.
Which one a kill meets differs from kill to kill (0.26 s or 5 s at a join limit of 0.2 s and collectives of
5 s): the median of a few is chance, so means are compared.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

COLLECTIVES_S, JOINS_MS = (0.2, 0.5, 1.0), (200, 100, 500)  # longer ones: its example, measured aside
Times = list[float]


@dataclass(frozen=True)
class Limits:
    """How long the lighthouse waits for stragglers, and a worker for a collective."""

    join_ms: int
    collective_s: float

    def __str__(self) -> str:
        return f"join {self.join_ms / 1000:g} s, collectives {self.collective_s:g} s"


EXAMPLE, BEST = Limits(2000, 5.0), Limits(100, 0.2)  # the best of the sweep that `rivals` makes


def sweep(measure: Callable[[Limits], Times], quick: bool) -> dict[Limits, Times]:
    """Seconds to the next step: by limits of collectives at one join limit, by the others at the best."""
    collectives_s, joins_ms = (COLLECTIVES_S[1:2], JOINS_MS[:2]) if quick else (COLLECTIVES_S, JOINS_MS)
    times = {limits: measure(limits) for limits in (Limits(joins_ms[0], one_s) for one_s in collectives_s)}
    best_s = best_of(times).collective_s
    return times | {limits: measure(limits) for limits in (Limits(one, best_s) for one in joins_ms[1:])}


def best_of(times: Mapping[Limits, Times]) -> Limits:
    """The least mean among those that came back from the most faults."""

    def rank(limits: Limits) -> tuple[int, float]:
        found = times[limits]
        return -len(found), statistics.fmean(found) if found else 0.0

    return min(times, key=rank)
