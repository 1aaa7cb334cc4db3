"""The tables, and our values as their rows. Nodes are as of their last change; heartbeats aren't stored."""

from typing import Any

import sqlalchemy as sa

from peerloom.services.registry.membership.node_records import (
    Event,
    Moment,
    NodeRecord,
    OpenSession,
    SessionRow,
    Transition,
)
from peerloom.v1.registry_pb2 import NodeSpec

metadata = sa.MetaData()

registry = sa.Table(
    "registry",
    metadata,
    sa.Column("registry_id", sa.String(36), primary_key=True),
    sa.Column("created_s", sa.Double, nullable=False),
    # Beyond it every event is there; up to it only the newest of each node.
    sa.Column("forgotten_sequence", sa.BigInteger, nullable=False, server_default="0"),
)

nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("node_id", sa.String(17), primary_key=True),
    sa.Column("name", sa.String(63), nullable=False, unique=True),
    sa.Column("key_sha256", sa.String(64), nullable=False),
    sa.Column("spec", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("state_reason", sa.Text, nullable=False),
    sa.Column("incarnation", sa.BigInteger, nullable=False),
    sa.Column("draining", sa.Boolean, nullable=False),
    sa.Column("registered_s", sa.Double, nullable=False),
    sa.Column("last_seen_s", sa.Double, nullable=False),
)

# `number` orders sessions even when the wall clock jumps.
sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("session_id", sa.String(38), nullable=False, unique=True),
    sa.Column("node_id", sa.ForeignKey("nodes.node_id"), nullable=False),
    sa.Column("request_id", sa.String(36), nullable=False),
    sa.Column("incarnation", sa.BigInteger, nullable=False),
    sa.Column("start_s", sa.Double, nullable=False),
    sa.Column("end_s", sa.Double),
    sa.Column("online_s", sa.Double),
    sa.Column("interrupted", sa.Boolean, nullable=False),
    sa.Column("end_reason", sa.Text, nullable=False),
    sa.UniqueConstraint("node_id", "request_id", name="uq_sessions_node_id_request_id"),
    sa.Index("ix_sessions_node_id_number", "node_id", "number"),
    sa.Index("ix_sessions_interrupted_number", "interrupted", "number"),
    sa.Index("ix_sessions_end_s", "end_s"),
)

# The sequence is given by the only writer, so that it has no gaps on any database but where events were
# forgotten. No foreign key: an event outlives its node.
events = sa.Table(
    "events",
    metadata,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.SmallInteger, nullable=False),
    sa.Column("node_id", sa.String(17), nullable=False),
    sa.Column("time_s", sa.Double, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("online_s", sa.Double, nullable=False),
    sa.Column("snapshot", sa.LargeBinary, nullable=False),
    sa.Index("ix_events_node_id_sequence", "node_id", "sequence"),
)

# The secret is kept as its SHA-256; who a token admits, and who was admitted, as the URI in certificates.
join_tokens = sa.Table(
    "join_tokens",
    metadata,
    sa.Column("token_id", sa.String(32), primary_key=True),
    sa.Column("proof_sha256", sa.String(64), nullable=False),
    sa.Column("uri", sa.String(512), nullable=False),
    sa.Column("made_by", sa.String(512), nullable=False),
    sa.Column("expires_s", sa.Double, nullable=False),
    sa.Column("used_s", sa.Double),
)

admitted = sa.Table(
    "admitted",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("uri", sa.String(512), nullable=False, unique=True),
    sa.Column("joined_s", sa.Double, nullable=False),
    sa.Column("revoked_s", sa.Double),
)


def node_row(record: NodeRecord) -> dict[str, Any]:
    """The row of a new node."""
    row = node_change(record)
    row["node_id"] = row.pop("of_node")
    return {**row, "name": record.name, "key_sha256": record.key_sha256, "registered_s": record.registered_s}


def node_change(record: NodeRecord) -> dict[str, Any]:
    """The columns that may change in the row of a known node, which is `of_node`."""
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
    """The row of a session that began."""
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
    """The columns that say how a session, `of_session`, ended."""
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
    """The event that tells watchers of a transition."""
    online_s = transition.closed.online_s if transition.closed else 0.0
    return Event(
        sequence, transition.kind, transition.time_s, transition.reason, online_s, transition.snapshot
    )


def event_row(event: Event, node_id: str) -> dict[str, Any]:
    """The row of an event."""
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
    """The record in a row of `nodes`."""
    return NodeRecord(
        row.node_id,
        row.name,
        row.key_sha256,
        NodeSpec.FromString(row.spec),
        row.state,
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
    """The session in a row of `sessions`."""
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
