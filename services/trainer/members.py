"""A job's workers as the decisions see them, and how long to wait for each."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass


class Phase(enum.Enum):
    """Where a worker is in its life."""

    STARTING = "starting"
    IDLE = "idle"
    WORKING = "working"
    LEAVING = "leaving"
    SILENT = "silent"
    FINISHED = "finished"
    LOST = "lost"


@dataclass(frozen=True)
class Member:
    """A worker as the decision sees it; `step` is the last committed one that it told of.

    `is_in_generation`: it was there when the current generation was formed; `is_ready`: it has that one's
    state. While that one meets beside the training of the one before, `meets_by_s` is how long it may take
    (monotonic), and `has_met` whether this worker is connected to all others. `is_departing`: its node wants
    it to leave, by `leave_by_s` (None: at once); until then it waits for a replacement. `save_asked_s`: when
    it was asked to store its state. `away_since_s` is since when (monotonic) we wait for it: to start, to
    come back, to leave, to speak again; None when we don't. `is_agent_away`: its node's agent can't be
    reached either. `quiet_at_s` is when its silence becomes suspicious, None while that can't be told.
    """

    worker_id: str
    phase: Phase
    step: int = 0
    is_in_generation: bool = False
    is_ready: bool = True
    meets_by_s: float | None = None
    has_met: bool = False
    is_departing: bool = False
    leave_by_s: float | None = None
    save_asked_s: float | None = None
    has_model: bool = False
    away_since_s: float | None = None
    is_agent_away: bool = False
    quiet_at_s: float | None = None


@dataclass(frozen=True)
class Limits:
    """How long to wait, in seconds: for a worker to start, leave or speak again; for one whose line broke;
    for one whose agent is away too. And the fewest workers to go on with, and the most to use.

    `meets_beside`: the backend lets a generation meet while the one before it works.
    """

    start_timeout_s: float
    reconnect_timeout_s: float
    agent_timeout_s: float
    min_workers: int
    max_workers: int = 2**24
    meets_beside: bool = True


# Only from these do we expect signs of life at a known pace.
OBSERVED = (Phase.WORKING, Phase.LEAVING)
# Waiting for these is patient: they load, compute a long step, or are frozen and may come back.
_PATIENT = (Phase.STARTING, Phase.LEAVING, Phase.SILENT)


def away_deadline(member: Member, limits: Limits) -> float | None:
    """When a worker that is away counts as lost; None while nobody waits for it."""
    if member.away_since_s is None or member.phase in (Phase.LOST, Phase.FINISHED):
        return None
    if member.is_agent_away:
        return member.away_since_s + limits.agent_timeout_s
    patient = member.phase in _PATIENT
    return member.away_since_s + (limits.start_timeout_s if patient else limits.reconnect_timeout_s)


def is_due(member: Member, now_s: float) -> bool:
    """Whether a departing worker need not wait for a replacement any more."""
    return member.leave_by_s is None or now_s >= member.leave_by_s


def next_deadline(members: Sequence[Member], limits: Limits, now_s: float) -> float | None:
    """When time alone changes what is to be done; None when it never does."""
    leave = [m.leave_by_s for m in members if m.is_departing and not is_due(m, now_s)]
    away = [away_deadline(m, limits) for m in members]
    quiet = [m.quiet_at_s for m in members if m.phase in OBSERVED]
    meet = [m.meets_by_s for m in members if m.phase is Phase.WORKING]
    return min((d for d in [*away, *quiet, *meet, *leave] if d is not None), default=None)


def has_passed(deadline_s: float | None, now_s: float) -> bool:
    """Whether there is a deadline, and it is over."""
    return deadline_s is not None and now_s >= deadline_s
