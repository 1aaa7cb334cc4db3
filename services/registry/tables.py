"""The tables. Nodes are as of their last change; beats are not stored."""

import sqlalchemy as sa

metadata = sa.MetaData()

registry = sa.Table(
    "registry",
    metadata,
    sa.Column("registry_id", sa.String(36), primary_key=True),
    sa.Column("created_s", sa.Double, nullable=False),
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

# The sequence is given by the only writer, so that it has no gaps on any database.
events = sa.Table(
    "events",
    metadata,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.SmallInteger, nullable=False),
    sa.Column("node_id", sa.ForeignKey("nodes.node_id"), nullable=False),
    sa.Column("time_s", sa.Double, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("online_s", sa.Double, nullable=False),
    sa.Column("snapshot", sa.LargeBinary, nullable=False),
)
