"""When an owner's machine is lent: hours, idleness with hysteresis, memory. Times are invented."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.errors import InvalidArgumentError
from peerloom.services.node_agent.owner.inventory import lent_cores
from peerloom.services.node_agent.owner.policy import (
    BUSY_S,
    CALM_PART,
    DAY_MINUTES,
    HostUsage,
    Hours,
    LendingState,
    MemoryUsage,
    OwnerLimits,
    first_state,
    judge_lending,
    over_memory,
)

NIGHT, NOON = Hours.parse("22:00-07:00"), Hours.parse("12:00-13:00")
IDLE = OwnerLimits(only_idle=True, idle_load=0.5, idle_wait_s=60.0)
QUIET = HostUsage(minute=0, others_load=0.1)
LOUD = HostUsage(minute=0, others_load=0.9)


@pytest.mark.parametrize(
    ("time", "lends"), [("21:59", False), ("22:00", True), ("00:00", True), ("06:59", True), ("07:00", False)]
)
def test_hours_go_over_midnight_and_leave_out_their_end(time: str, lends: bool) -> None:
    hour, minute = time.split(":")
    assert NIGHT.holds(60 * int(hour) + int(minute)) is lends


@pytest.mark.parametrize("text", ["", "22-7", "24:00-07:00", "22:00-22:00", "7:60-8:00", "07:00"])
def test_hours_that_cannot_be_read_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="lend_hours"):
        Hours.parse(text)


def test_outside_all_hours_the_reason_names_the_time_and_the_hours() -> None:
    limits = OwnerLimits((NIGHT, NOON))
    state = judge_lending(limits, first_state(limits), replace(QUIET, minute=8 * 60 + 5), 0.0)
    assert state == LendingState(
        lends=False, reason="It is 08:05, and the owner lends the machine 22:00-07:00, 12:00-13:00."
    )
    assert judge_lending(limits, state, replace(QUIET, minute=12 * 60), 1.0) == LendingState(lends=True)


def test_a_machine_lent_while_idle_has_to_be_quiet_first() -> None:
    state = first_state(IDLE)
    assert not state.lends
    state = judge_lending(IDLE, state, QUIET, 10.0)
    assert not judge_lending(IDLE, state, QUIET, 69.9).lends
    assert judge_lending(IDLE, state, QUIET, 70.0).lends


def test_only_lasting_load_takes_the_machine_back() -> None:
    state = judge_lending(IDLE, LendingState(lends=True), LOUD, 0.0)
    assert judge_lending(IDLE, state, LOUD, BUSY_S - 0.1).lends
    taken = judge_lending(IDLE, state, LOUD, BUSY_S)
    assert not taken.lends
    assert "90% of its processor, over 50%" in taken.reason
    burst_over = judge_lending(IDLE, state, QUIET, 3.0)
    assert judge_lending(IDLE, burst_over, LOUD, BUSY_S).lends


def test_load_between_calm_and_busy_changes_nothing() -> None:
    between = replace(QUIET, others_load=0.9 * IDLE.idle_load)
    for before in (LendingState(lends=True), LendingState(lends=False, reason="used", is_used=True)):
        state = before
        for now_s in range(0, 1000, 10):
            state = judge_lending(IDLE, state, between, float(now_s))
        assert state == before


def test_somebody_at_a_terminal_counts_as_use() -> None:
    typing = replace(QUIET, typed_ago_s=1.0)
    state = judge_lending(IDLE, LendingState(lends=True), typing, 0.0)
    state = judge_lending(IDLE, state, typing, BUSY_S)
    assert (state.lends, "terminal" in state.reason) == (False, True)
    assert judge_lending(
        IDLE, LendingState(lends=True), replace(QUIET, typed_ago_s=61.0), 0.0
    ) == LendingState(lends=True)


def test_both_limits_must_be_met() -> None:
    both = replace(IDLE, hours=(NIGHT,))
    by_day = judge_lending(both, LendingState(lends=True), replace(QUIET, minute=600), 0.0)
    assert not by_day.lends
    assert judge_lending(both, by_day, QUIET, 1.0).lends, "it was quiet all the while"


@given(
    st.lists(
        st.tuples(st.floats(0, 20), st.floats(0, 1), st.none() | st.floats(0, 200), st.integers(0, 1439)),
        max_size=60,
    ),
    st.booleans(),
    st.booleans(),
)
def test_a_standing_always_has_its_reason_and_never_flaps(
    looks: list[tuple[float, float, float | None, int]], only_idle: bool, has_hours: bool
) -> None:
    """No reason while it lends, one while not; taken for use only after lasting load, given after calm."""
    limits = replace(IDLE, only_idle=only_idle, hours=(NIGHT,) if has_hours else ())
    state, now_s, busy_s, calm_s = first_state(limits), 0.0, 0.0, 0.0
    for passed_s, load, typed_ago_s, minute in looks:
        now_s += passed_s
        seen = HostUsage(minute, load, typed_ago_s)
        before, state = state, judge_lending(limits, state, seen, now_s)
        someone = typed_ago_s is not None and typed_ago_s < IDLE.idle_wait_s
        busy_s = busy_s + passed_s if someone or load > IDLE.idle_load else 0.0
        calm_s = calm_s + passed_s if not someone and load <= CALM_PART * IDLE.idle_load else 0.0
        assert state.lends == (not state.reason)
        in_hours = not has_hours or NIGHT.holds(minute)
        assert state.lends == (in_hours and not state.is_used)
        if state.is_used and not before.is_used:
            assert busy_s >= BUSY_S
        if before.is_used and not state.is_used:
            assert calm_s >= IDLE.idle_wait_s


@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(1, 3000))
def test_the_newest_go_until_the_others_fit(sizes: list[int], limit: int) -> None:
    workers = [MemoryUsage(f"w{i}", size) for i, size in enumerate(sizes)]
    going, reason = over_memory(workers, limit)
    staying = [w for w in workers if w.worker_id not in going]
    assert sum(w.memory_bytes for w in staying) <= limit
    assert going == tuple(w.worker_id for w in reversed(workers[len(staying) :]))
    assert bool(going) == bool(reason) == (sum(sizes) > limit)
    if going:
        assert sum(sizes[: len(staying) + 1]) > limit, "no more than necessary"


def test_without_a_limit_nobody_goes_for_memory() -> None:
    assert over_memory([MemoryUsage("w", 10**12)], 0) == ((), "")


@given(st.lists(st.integers(0, 255), min_size=1, max_size=64, unique=True), st.floats(0.01, 1))
def test_the_lent_cores_are_a_share_of_the_usable_ones(cores: list[int], share: float) -> None:
    lent = lent_cores(sorted(cores), share)
    assert set(lent) <= set(cores)
    assert len(lent) == max(1, int(share * len(cores)))


def test_a_whole_day_has_each_minute_in_exactly_one_of_two_halves() -> None:
    day, night = Hours.parse("07:00-22:00"), NIGHT
    assert all(day.holds(minute) != night.holds(minute) for minute in range(DAY_MINUTES))
