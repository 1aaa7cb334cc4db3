"""Which worker has to leave, and when it is made to: a pure function of its record and the time.

Workers are asked to leave: each hands its work over at a step boundary, and its trainer may look for a
replacement first. To a drain they may take what time they need; an owner who wants the machine back waits
no longer than the grace and a little more.
"""

import math
from dataclasses import dataclass, replace
from enum import Enum

FORCE_AFTER_S = 20.0  # past the grace: to keep the state of a job that has no other node
DRAINED = "its node is being drained"


@dataclass(frozen=True)
class LeaveRequest:
    """A worker was asked to leave; `by_s` (monotonic) is when it will be made to, infinite for never.

    `by_owner`: by the owner's limits and not by a drain alone. `is_final`: it can't be taken back, whatever
    changes. `is_forced`: it has been made to.
    """

    reason: str
    by_s: float
    by_owner: bool
    is_final: bool = False
    is_forced: bool = False


class Step(Enum):
    """What to do about a worker."""

    NOTHING = "nothing"
    ASK_TO_LEAVE = "ask to leave"
    LET_STAY = "let stay"
    END = "end"


@dataclass(frozen=True)
class Reasons:
    """Why a worker has to leave; each is empty, or False, where it doesn't apply."""

    over_memory: str = ""
    withheld: str = ""
    is_draining: bool = False


def decide_leave(
    asked: LeaveRequest | None, reasons: Reasons, grace_s: float, now_s: float
) -> tuple[Step, LeaveRequest | None]:
    """The next step, and the worker's record after it; None: it isn't asked to leave.

    `asked` is the record so far, `grace_s` how long the owner lets a worker wait for its replacement, and
    `now_s` the monotonic time.
    """
    if asked is not None and asked.is_final:
        return _when_due(asked, now_s)
    by_owner = reasons.over_memory or reasons.withheld
    if not by_owner and not reasons.is_draining:
        return (Step.LET_STAY, None) if asked is not None else (Step.NOTHING, None)
    if asked is not None and (asked.by_owner or not by_owner):
        return _when_due(asked, now_s)
    by_s = now_s + grace_s + FORCE_AFTER_S if by_owner else math.inf
    reason = by_owner or DRAINED
    made = LeaveRequest(reason, by_s, by_owner=bool(by_owner), is_final=bool(reasons.over_memory))
    return Step.ASK_TO_LEAVE, made


def _when_due(asked: LeaveRequest, now_s: float) -> tuple[Step, LeaveRequest]:
    if now_s >= asked.by_s and not asked.is_forced:
        return Step.END, replace(asked, is_forced=True)
    return Step.NOTHING, asked
