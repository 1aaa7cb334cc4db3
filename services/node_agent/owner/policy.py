"""Whether the owner lends the machine just now: pure functions of limits, the machine's use, and the time."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from peerloom.errors import InvalidArgumentError

DAY_MINUTES = 24 * 60
BUSY_S = 5.0  # a burst of load shorter than this takes nothing away
CALM_PART = 0.8  # of the limit: load between this and the limit changes nothing, so it can't flap
_HOURS = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)-([01]?\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True)
class Hours:
    """A range of minutes since local midnight, the end not included; it may go over midnight."""

    start: int
    end: int

    @classmethod
    def parse(cls, text: str) -> "Hours":
        """Reads "22:00-07:00". Raises InvalidArgumentError for anything else, or an empty range."""
        found = _HOURS.fullmatch(text.strip())
        if found is not None:
            start_hour, start_minute, end_hour, end_minute = (int(part) for part in found.groups())
            hours = cls(60 * start_hour + start_minute, 60 * end_hour + end_minute)
            if hours.start != hours.end:
                return hours
        raise InvalidArgumentError.of_field("lend_hours", text, "HH:MM-HH:MM, two different times of the day")

    def holds(self, minute: int) -> bool:
        """Whether the minute of the day lies within."""
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end

    def __str__(self) -> str:
        return f"{_clock(self.start)}-{_clock(self.end)}"


@dataclass(frozen=True)
class OwnerLimits:
    """What the owner sets. No `hours`: at all times.

    `idle_load` is the part of all cores, 0 to 1, that others may use while the machine counts as idle, and
    `idle_wait_s` how long it must have been so; both matter only with `only_idle`.
    """

    hours: tuple[Hours, ...] = ()
    only_idle: bool = False
    idle_load: float = 0.25
    idle_wait_s: float = 60.0


@dataclass(frozen=True)
class HostUsage:
    """How the machine is used, as the agent sees it.

    `minute` of the local day; `others_load` the part of all cores that is used by others than the agent
    and its workers, 0 to 1; `typed_ago_s` since somebody typed at a terminal, None when nobody is there.
    """

    minute: int
    others_load: float
    typed_ago_s: float | None = None


@dataclass(frozen=True)
class LendingState:
    """Whether the machine is lent, and why not. `since_s` is since when (monotonic) the load has been on
    the other side of the limit than this state says, None while it isn't."""

    lends: bool
    reason: str = ""
    is_used: bool = False
    since_s: float | None = None


def first_state(limits: OwnerLimits) -> LendingState:
    """Before the first look: a machine that is lent only while idle has to show that it is."""
    if limits.only_idle:
        reason = f"The machine has not been idle for {limits.idle_wait_s:g} s yet."
        return LendingState(lends=False, reason=reason, is_used=True)
    return LendingState(lends=True)


def judge_lending(limits: OwnerLimits, state: LendingState, usage: HostUsage, now_s: float) -> LendingState:
    """The state that follows from the last one and the machine's use at `now_s` (monotonic seconds)."""
    if limits.only_idle:
        state = _judge_use(limits, state, usage, now_s)
    if limits.hours and not any(hours.holds(usage.minute) for hours in limits.hours):
        ranges = ", ".join(str(hours) for hours in limits.hours)
        reason = f"It is {_clock(usage.minute)}, and the owner lends the machine {ranges}."
        return replace(state, lends=False, reason=reason)
    if state.is_used:
        return replace(state, lends=False)
    return replace(state, lends=True, reason="")


def _judge_use(limits: OwnerLimits, state: LendingState, usage: HostUsage, now_s: float) -> LendingState:
    someone = usage.typed_ago_s is not None and usage.typed_ago_s < limits.idle_wait_s
    busy = someone or usage.others_load > limits.idle_load
    calm = not someone and usage.others_load <= CALM_PART * limits.idle_load
    changes = calm if state.is_used else busy
    if not changes:
        return replace(state, since_s=None)
    since_s = now_s if state.since_s is None else state.since_s
    wait_s = limits.idle_wait_s if state.is_used else BUSY_S
    if now_s - since_s < wait_s:
        return replace(state, since_s=since_s)
    if state.is_used:
        return replace(state, is_used=False, reason="", since_s=None)
    why = "somebody works at a terminal"
    if not someone:
        why = f"others use {usage.others_load:.0%} of its processor, over {limits.idle_load:.0%}"
    return replace(
        state, is_used=True, reason=f"The owner lends the machine only while idle; {why}.", since_s=None
    )


@dataclass(frozen=True)
class MemoryUsage:
    """The memory that one worker uses by itself."""

    worker_id: str
    memory_bytes: int


def over_memory(workers: Sequence[MemoryUsage], limit_bytes: int) -> tuple[tuple[str, ...], str]:
    """Which workers have to go so that the others fit the owner's limit, and why; 0: no limit.

    `workers` in the order in which they were started: the newest goes first, as it has worked least.
    """
    total_bytes = sum(worker.memory_bytes for worker in workers)
    if not limit_bytes or total_bytes <= limit_bytes:
        return (), ""
    reason = f"The workers use {total_bytes:,} bytes of memory; the owner lends {limit_bytes:,}."
    going = []
    for worker in reversed(workers):
        if total_bytes <= limit_bytes:
            break
        going.append(worker.worker_id)
        total_bytes -= worker.memory_bytes
    return tuple(going), reason


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
