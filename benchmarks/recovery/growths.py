"""How much more processes hold with each disturbance, from what was read in between; pure functions.

The growth is the median slope of readings that are half a run apart (soak/growth.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.measure import Goal, Measurement, measurement
from benchmarks.soak.growth import pair_slopes

# What one disturbance may leave for good. Of memory, one in each ten minutes of a year would take 1 GB.
BOUNDS = {"descriptors": 0.0, "threads": 0.0, "megabytes": 0.02}
Process = tuple[str, int]  # its kind and its pid


@dataclass(frozen=True)
class Reading:
    """What a process holds after so many disturbances, by the keys of BOUNDS."""

    count: int
    held: Mapping[str, float]


def growths(readings: Mapping[Process, Sequence[Reading]], settled: int, what: str) -> list[Measurement]:
    """How much more each kind of process holds with each `what`, after the first `settled` of them.

    Raises SystemExit when a process wasn't there from the first reading to the last.
    """
    longest = max(len(life) for life in readings.values())
    if fleeting := sorted({kind for (kind, _), life in readings.items() if len(life) < longest}):
        raise SystemExit(f"not there from the first {what} to the last: {', '.join(fleeting)}")
    last = max(reading.count for life in readings.values() for reading in life)
    lives_of = {kind: [life for (one, _), life in readings.items() if one == kind] for kind, _ in readings}
    return [
        measurement(
            f"{unit} of {kind}, more with each {what} from number {settled} to {last}",
            f"{unit} a {what}",
            [slope for life in lives for slope in _slopes(life, settled, unit)],
            goal=Goal(bound, at_least=False),
        )
        for kind, lives in lives_of.items()
        for unit, bound in BOUNDS.items()
    ]


def _slopes(life: Sequence[Reading], settled: int, unit: str) -> list[float]:
    return pair_slopes([(float(one.count), one.held[unit]) for one in life if one.count >= settled])
