"""What the table holds, the store keeps and the feed tells: values that never change."""

from dataclasses import dataclass

from peerloom.v1.registry_pb2 import NodeEventKind, NodeSpec, NodeState


@dataclass(frozen=True)
class Moment:
    """One instant on both clocks, in seconds."""

    wall_s: float
    monotonic_s: float


@dataclass(frozen=True)
class NodeRecord:
    """A node's durable facts; `last_seen_s` (wall) is as of its last change; heartbeats don't renew it."""

    node_id: str
    name: str
    key_sha256: str
    spec: NodeSpec
    state: NodeState.ValueType
    state_reason: str
    incarnation: int
    draining: bool
    registered_s: float
    last_seen_s: float


@dataclass(frozen=True)
class OpenSession:
    """An online period under way; `start_wall_s` is stored, `start_monotonic_s` is of this process."""

    session_id: str
    node_id: str
    request_id: str
    incarnation: int
    start_wall_s: float
    start_monotonic_s: float


@dataclass(frozen=True)
class ClosedSession:
    """How an online period ended; `online_s` is its length, `end_s` the wall time."""

    session_id: str
    end_s: float
    online_s: float
    interrupted: bool
    reason: str


@dataclass(frozen=True)
class SessionRow:
    """A stored session; the last four fields are None, None, False and "" while it is open."""

    number: int
    session_id: str
    node_id: str
    incarnation: int
    start_s: float
    end_s: float | None
    online_s: float | None
    interrupted: bool
    end_reason: str


@dataclass(frozen=True)
class Transition:
    """One change of one node: the node right after, the session that opened or closed, and the event.

    `snapshot` is the serialized proto Node; `is_first` says that the node was unknown before, `is_last` that
    it is unknown from now on.
    """

    record: NodeRecord
    kind: NodeEventKind.ValueType
    reason: str
    time_s: float
    snapshot: bytes
    is_first: bool = False
    is_last: bool = False
    opened: OpenSession | None = None
    closed: ClosedSession | None = None


@dataclass(frozen=True)
class Event:
    """A committed change as watchers see it."""

    sequence: int
    kind: NodeEventKind.ValueType
    time_s: float
    reason: str
    online_s: float
    snapshot: bytes


@dataclass(frozen=True)
class LoadedRegistry:
    """What the database held at the start."""

    registry_id: str
    newest_sequence: int
    forgotten_sequence: int
    records: list[NodeRecord]
    sessions: list[OpenSession]
