"""Entries of the catalog, what the registry last said of each node; and what its events mean here. Pure."""

from dataclasses import dataclass, field

from peerloom.kit.limits import MAX_DETAIL_CHARACTERS
from peerloom.services.selector.belief.evidence_report import REGISTRY_PREFIX, Evidence
from peerloom.v1.registry_pb2 import (
    NODE_EVENT_KIND_INTERRUPTED,
    NODE_EVENT_KIND_LEFT,
    NODE_STATE_UNSPECIFIED,
    NodeEventKind,
    NodeState,
)
from peerloom.v1.selector_pb2 import EVIDENCE_KIND_INTERRUPTION, EVIDENCE_KIND_SESSION_ENDED

_EVIDENCE_OF = {
    NODE_EVENT_KIND_LEFT: EVIDENCE_KIND_SESSION_ENDED,
    NODE_EVENT_KIND_INTERRUPTED: EVIDENCE_KIND_INTERRUPTION,
}


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A node as the registry last told of it.

    `session_start_s` (since 1970) is when its open session began; None: none is open. `speed_gflops` is what
    the node says that one of its slots can do, in 1e9 operations a second, and `heartbeat_s` in how many
    seconds its heartbeats are answered; 0: it says nothing. `owner` is whom its certificate names; "": no
    door.
    """

    node_id: str
    name: str = ""
    address: str = ""
    slots: int = 0
    state: NodeState.ValueType = NODE_STATE_UNSPECIFIED
    draining: bool = False
    labels: dict[str, str] = field(default_factory=dict)
    accelerators: tuple[str, ...] = ()
    session_start_s: float | None = None
    speed_gflops: float = 0.0
    heartbeat_s: float = 0.0
    owner: str = ""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One entry of the registry's log. `entry.session_start_s` is the start of the open session, if any."""

    registry_id: str
    sequence: int
    kind: NodeEventKind.ValueType
    entry: CatalogEntry
    reason: str
    online_s: float
    time_s: float


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far we have read which registry's log; sequence 0: nothing yet."""

    registry_id: str = ""
    sequence: int = 0


def evidence_of(event: NodeEvent) -> Evidence | None:
    """The evidence in the event of a session's end, with or without notice; None for any other event."""
    kind = _EVIDENCE_OF.get(event.kind)
    if kind is None:
        return None
    return Evidence(
        evidence_id=f"{REGISTRY_PREFIX}{event.registry_id}/{event.sequence}",
        node_id=event.entry.node_id,
        kind=kind,
        time_s=event.time_s,
        online_s=event.online_s,
        detail=event.reason[:MAX_DETAIL_CHARACTERS],
    )


def open_online_s(session_start_s: float | None, now_s: float) -> float:
    """Length of the open session in seconds; 0 when there is none, or when our clock is behind."""
    return max(0.0, now_s - session_start_s) if session_start_s is not None else 0.0
