"""Clocks: the manual one moves only when told, and times survive the wire to the microsecond."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.kit.clock import ManualClock, SystemClock, from_timestamp, to_datetime, to_timestamp


def test_a_manual_clock_moves_both_its_times_and_only_when_told() -> None:
    clock = ManualClock(wall_s=100.0)
    assert (clock.wall_s(), clock.monotonic_s()) == (100.0, 0.0)
    clock.advance(2.5)
    clock.advance(0.0)
    assert (clock.wall_s(), clock.monotonic_s()) == (102.5, 2.5)


def test_a_manual_clock_does_not_go_back() -> None:
    with pytest.raises(AssertionError):
        ManualClock().advance(-1)


def test_the_system_clocks_are_those_of_the_machine() -> None:
    clock = SystemClock()
    first = clock.monotonic_s()
    assert clock.monotonic_s() >= first
    assert abs(clock.wall_s() - datetime.now(UTC).timestamp()) < 60


@given(st.floats(-60_000_000_000, 250_000_000_000))
def test_a_time_survives_the_wire_to_the_microsecond(wall_s: float) -> None:
    assert from_timestamp(to_timestamp(wall_s)) == pytest.approx(wall_s, abs=1e-6, rel=1e-15)


def test_a_timestamp_as_a_date_is_in_utc() -> None:
    assert to_datetime(to_timestamp(86_400.25)) == datetime(1970, 1, 2, 0, 0, 0, 250_000, tzinfo=UTC)
