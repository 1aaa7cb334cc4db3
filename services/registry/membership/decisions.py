"""Who is alive, who may register and what a beat means: pure functions of state and a given time.

The states, the incarnations and the refutation follow SWIM (Das, Gupta, Motivala 2002, section 4.2).
"""

import enum
from dataclasses import dataclass

from peerloom.errors import InvalidArgumentError
from peerloom.kit.allowance import Rate
from peerloom.v1.registry_pb2 import NODE_STATE_ALIVE, NODE_STATE_DEAD, NODE_STATE_SUSPECT, NodeState

MAX_INCARNATION_STEP = 1000
# Changes of one node that are written and told: a node, or a user, that flips one all the time must not fill
# the log. What its heartbeats say is taken up later, as it is then.
CHANGE_RATE = Rate(most=100, per_s=1.0)


class Beat(enum.Enum):
    """What one heartbeat does beyond being a sign of life."""

    KEEP = enum.auto()
    ADOPT = enum.auto()
    REFUTE = enum.auto()


class Welcome(enum.Enum):
    """What a registration does."""

    FIRST = enum.auto()
    RETURN = enum.auto()
    RETURN_AFTER_CRASH = enum.auto()
    REFUSE = enum.auto()


@dataclass(frozen=True)
class Timing:
    """How long silence may last, in seconds: interval < suspect < dead; the grace follows each start."""

    heartbeat_interval_s: float
    suspect_after_s: float
    dead_after_s: float
    restart_grace_s: float


@dataclass(frozen=True)
class NodeVerdict:
    """The state a node should have now, why, and when to look again (monotonic seconds)."""

    state: NodeState.ValueType
    reason: str
    next_check_s: float


def judge(
    state: NodeState.ValueType, heard_s: float, listening_s: float, now_s: float, timing: Timing
) -> NodeVerdict:
    """The verdict on a node last heard at `heard_s`, by a registry that listens since `listening_s`.

    Only for a node with an open session: ALIVE or SUSPECT. All times are monotonic seconds; `heard_s`
    is -inf for a node not yet heard, `listening_s` may lie ahead. One step a verdict: nobody goes from
    ALIVE to DEAD without having been SUSPECT.
    """
    since_s = max(heard_s, listening_s)
    silence_s = now_s - since_s
    said = f"No heartbeat for {silence_s:.1f} s"
    if state == NODE_STATE_ALIVE and silence_s >= timing.suspect_after_s:
        reason = f"{said}; suspected after {timing.suspect_after_s:g} s."
        return NodeVerdict(NODE_STATE_SUSPECT, reason, since_s + timing.dead_after_s)
    if state == NODE_STATE_SUSPECT and silence_s >= timing.dead_after_s:
        reason = f"{said}; the session is closed after {timing.dead_after_s:g} s."
        return NodeVerdict(NODE_STATE_DEAD, reason, since_s + timing.dead_after_s)
    if state == NODE_STATE_SUSPECT:
        # In time for a second suspicion, should the node refute this one right now.
        next_check_s = min(since_s + timing.dead_after_s, now_s + timing.suspect_after_s)
        return NodeVerdict(state, "Silent, but not for long enough to be dead.", next_check_s)
    return NodeVerdict(state, "Heard in time.", since_s + timing.suspect_after_s)


def judge_broken_stream(state: NodeState.ValueType) -> tuple[NodeState.ValueType, str]:
    """The state of a node whose heartbeat stream ended without a Deregister, and why."""
    if state == NODE_STATE_ALIVE:
        return NODE_STATE_SUSPECT, "Its heartbeat stream broke."
    return state, "Only a node that is alive is suspected."


def judge_beat(state: NodeState.ValueType, known: int, incarnation: int) -> Beat:
    """What a beat with `incarnation` means for a node `known` by another or the same one.

    Raises InvalidArgumentError for a jump by over 1,000, after which nobody could count on.
    """
    if incarnation <= known:
        return Beat.KEEP
    if incarnation - known > MAX_INCARNATION_STEP:
        limit = f"at most {MAX_INCARNATION_STEP:,} above the known {known:,}"
        raise InvalidArgumentError.of_field("incarnation", incarnation, limit)
    return Beat.REFUTE if state == NODE_STATE_SUSPECT else Beat.ADOPT


def judge_registration(holder_key: str | None, key: str, session_is_open: bool) -> tuple[Welcome, str]:
    """What a registration under a name does, given the hash of its holder's key (None: free), and why."""
    if holder_key is None:
        return Welcome.FIRST, "Registered for the first time."
    if holder_key != key:
        return Welcome.REFUSE, "The key given now is another one: the first keeps the name."
    if session_is_open:
        return (
            Welcome.RETURN_AFTER_CRASH,
            "Registered again while its session was open: it had gone without notice.",
        )
    return Welcome.RETURN, "Registered again."


def listening_since(listening_s: float, asleep_s: float, awake_s: float, timing: Timing) -> float:
    """Since when the registry listens, after it meant to sleep shortly from `asleep_s` on.

    A registry that was itself stopped for over half of suspect_after_s has heard nobody in that time, so
    all silences begin anew; a shorter pause changes nothing.
    """
    paused = awake_s - asleep_s > timing.suspect_after_s / 2
    return max(listening_s, awake_s) if paused else listening_s


def last_sign_s(heard_s: float, run_start_s: float, session_start_s: float) -> float:
    """When an interrupted session really ended: at its last sign of life (monotonic seconds).

    A node not heard since the registry started counts as online until that start: the former process
    heard it, but did not write down when.
    """
    return max(heard_s, run_start_s, session_start_s)
