"""What a process tells of itself in numbers, read from what it knows when somebody asks; needs no library."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

METRICS_HELP = (
    "host:port where Prometheus reads this process's metrics; empty: none. Port 0 takes a free one; needs "
    "`pip install 'peerloom[metrics]'`. Who reaches it reads them without a certificate, so give a loopback "
    "address where a firewall doesn't keep others away"
)


class MetricKind(StrEnum):
    """Prometheus's types: a counter only grows until a restart, a gauge is as of now."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """A metric by Prometheus's conventions.

    `labels` are the names of its labels; each has few values, none of which a user chose.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


class Tally:
    """A histogram: how many values were up to each of `bounds` (ascending), and beyond; and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Takes one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(frozen=True)
class Reading:
    """What a metric says now: a number, or a Tally for a histogram, by the values of its labels."""

    metric: Metric
    values: Mapping[tuple[str, ...], float | Tally]


def reading(metric: Metric, value: float | Tally) -> Reading:
    """The reading of a metric without labels."""
    return Reading(metric, {(): value})


def enum_labels(enum: Any, prefix: str) -> dict[int, str]:
    """The label for each number of a protobuf enum but 0: its name without `prefix`, in lower case."""
    return {number: name.removeprefix(prefix).lower() for name, number in enum.items() if number}


class MetricSource(Protocol):
    """A part of a process that tells of itself: `metrics` are all that `collect` ever tells of."""

    metrics: ClassVar[tuple[Metric, ...]]

    async def collect(self) -> Sequence[Reading]:
        """The readings of now; called on the process's event loop."""
