"""Our values as rows of the tables, and back."""

from typing import Any

from peerloom.services.registry.records import (
    Event,
    Moment,
    NodeRecord,
    OpenSession,
    SessionRow,
    Transition,
)
from peerloom.services.registry.rules import State
from peerloom.v1.registry_pb2 import NodeSpec


def node_row(record: NodeRecord) -> dict[str, Any]:
    """A new node."""
    row = node_change(record)
    row["node_id"] = row.pop("of_node")
    return {**row, "name": record.name, "key_sha256": record.key_sha256, "registered_s": record.registered_s}


def node_change(record: NodeRecord) -> dict[str, Any]:
    """What may change of a known node."""
    return {
        "of_node": record.node_id,
        "spec": record.spec.SerializeToString(),
        "state": int(record.state),
        "state_reason": record.state_reason,
        "incarnation": record.incarnation,
        "draining": record.draining,
        "last_seen_s": record.last_seen_s,
    }


def opened_row(session: OpenSession) -> dict[str, Any]:
    """A session that began."""
    return {
        "session_id": session.session_id,
        "node_id": session.node_id,
        "request_id": session.request_id,
        "incarnation": session.incarnation,
        "start_s": session.start_wall_s,
        "interrupted": False,
        "end_reason": "",
    }


def closed_row(transition: Transition) -> dict[str, Any]:
    """How a session ended."""
    closed = transition.closed
    assert closed is not None
    return {
        "of_session": closed.session_id,
        "end_s": closed.end_s,
        "online_s": closed.online_s,
        "interrupted": closed.interrupted,
        "end_reason": closed.reason,
    }


def event_of(sequence: int, transition: Transition) -> Event:
    """The event that tells of a change."""
    online_s = transition.closed.online_s if transition.closed else 0.0
    return Event(
        sequence, transition.kind, transition.time_s, transition.reason, online_s, transition.snapshot
    )


def event_row(event: Event, node_id: str) -> dict[str, Any]:
    """An event of one node."""
    return {
        "sequence": event.sequence,
        "kind": int(event.kind),
        "node_id": node_id,
        "time_s": event.time_s,
        "reason": event.reason,
        "online_s": event.online_s,
        "snapshot": event.snapshot,
    }


def record(row: Any) -> NodeRecord:
    """A stored node."""
    return NodeRecord(
        row.node_id,
        row.name,
        row.key_sha256,
        NodeSpec.FromString(row.spec),
        State(row.state),
        row.state_reason,
        row.incarnation,
        row.draining,
        row.registered_s,
        row.last_seen_s,
    )


def open_session(row: Any, now: Moment) -> OpenSession:
    """A stored session that is open, its monotonic start counted back from `now`."""
    start_monotonic_s = now.monotonic_s - max(0.0, now.wall_s - row.start_s)
    return OpenSession(
        row.session_id, row.node_id, row.request_id, row.incarnation, row.start_s, start_monotonic_s
    )


def session_row(row: Any) -> SessionRow:
    """A stored session."""
    return SessionRow(
        row.number,
        row.session_id,
        row.node_id,
        row.incarnation,
        row.start_s,
        row.end_s,
        row.online_s,
        row.interrupted,
        row.end_reason,
    )
