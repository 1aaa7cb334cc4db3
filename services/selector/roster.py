"""The roster: what the registry last said of each node, and what one of its events means to us. Pure."""

import enum
from dataclasses import dataclass, field

from peerloom.services.selector.evidence import REGISTRY_PREFIX, Evidence
from peerloom.services.selector.rules import EvidenceKind


class NodeState(enum.IntEnum):
    """A node's life as the registry sees it; numbered as in the schema. UNKNOWN: it hasn't told us."""

    UNKNOWN = 0
    ALIVE = 1
    SUSPECT = 2
    DEAD = 3
    LEFT = 4


class EventKind(enum.IntEnum):
    """The registry's events that mean more than the node's new state; numbered as in the schema."""

    REGISTERED = 1
    LEFT = 4
    INTERRUPTED = 5


_EVIDENCE_OF = {
    EventKind.LEFT: EvidenceKind.SESSION_ENDED,
    EventKind.INTERRUPTED: EvidenceKind.INTERRUPTION,
}


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One node. `session_start_s` (since 1970) is when its open session began; None: none is open.

    `speed_gflops` is what it says that one of its slots can do, in 1e9 operations a second, and `heartbeat_s`
    in how many seconds its heartbeats are answered; 0: nothing.
    """

    node_id: str
    name: str = ""
    address: str = ""
    slots: int = 0
    state: int = NodeState.UNKNOWN
    draining: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    accelerators: tuple[str, ...] = ()
    session_start_s: float | None = None
    speed_gflops: float = 0.0
    heartbeat_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One entry of the registry's log. `entry.session_start_s` is the start of the open session, if any."""

    registry_id: str
    sequence: int
    kind: int
    entry: RosterEntry
    reason: str
    online_s: float
    time_s: float


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far we have read which registry's log; sequence 0: nothing yet."""

    registry_id: str = ""
    sequence: int = 0


def evidence_of(event: NodeEvent) -> Evidence | None:
    """The evidence in an event: the end of a session, with or without notice; None for all others."""
    kind = _EVIDENCE_OF.get(event.kind)  # type: ignore[call-overload]  # an IntEnum is found by its number
    if kind is None:
        return None
    return Evidence(
        evidence_id=f"{REGISTRY_PREFIX}{event.registry_id}/{event.sequence}",
        node_id=event.entry.node_id,
        kind=kind,
        time_s=event.time_s,
        online_s=event.online_s,
        detail=event.reason[:512],
    )


def open_online_s(session_start_s: float | None, now_s: float) -> float:
    """Length of the open session in seconds; 0 when there is none, or when our clock is behind."""
    return max(0.0, now_s - session_start_s) if session_start_s is not None else 0.0
