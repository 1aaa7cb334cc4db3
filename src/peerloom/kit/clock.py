"""Time as a value that is handed in, so that tests can invent it."""

import time
from datetime import UTC, datetime
from typing import Protocol

from google.protobuf.timestamp_pb2 import Timestamp


class Clock(Protocol):
    """Where a service takes the time from."""

    def wall_s(self) -> float:
        """Seconds since 1970, for people and for records; may jump."""

    def monotonic_s(self) -> float:
        """Seconds since some start, for measuring lengths; never goes back."""


class SystemClock:
    """The machine's own clocks."""

    def wall_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told; both its times move together."""

    def __init__(self, wall_s: float = 1_700_000_000.0) -> None:
        self._start_wall_s = wall_s
        self._elapsed_s = 0.0

    def wall_s(self) -> float:
        return self._start_wall_s + self._elapsed_s

    def monotonic_s(self) -> float:
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        """Moves both times on by `seconds`, 0 or more."""
        assert seconds >= 0, "a clock doesn't go back"
        self._elapsed_s += seconds


def to_timestamp(wall_s: float) -> Timestamp:
    """Seconds since 1970 as a protobuf Timestamp, to the microsecond."""
    stamp = Timestamp()
    stamp.FromMicroseconds(round(wall_s * 1e6))
    return stamp


def from_timestamp(stamp: Timestamp) -> float:
    """A protobuf Timestamp as seconds since 1970."""
    return stamp.ToMicroseconds() / 1e6


def to_datetime(stamp: Timestamp) -> datetime:
    """A protobuf Timestamp as an aware datetime in UTC."""
    return stamp.ToDatetime(tzinfo=UTC)
