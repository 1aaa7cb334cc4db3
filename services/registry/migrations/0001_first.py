"""The first schema: the registry's id, nodes, sessions and events."""

import sqlalchemy as sa
from alembic import op

revision = "registry_0001"
down_revision = None


def upgrade() -> None:
    """Creates the tables."""
    op.create_table(
        "registry",
        sa.Column("registry_id", sa.String(36), primary_key=True),
        sa.Column("created_s", sa.Double, nullable=False),
    )
    op.create_table(
        "nodes",
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
    _create_sessions()
    op.create_table(
        "events",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("node_id", sa.String(17), sa.ForeignKey("nodes.node_id"), nullable=False),
        sa.Column("time_s", sa.Double, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("online_s", sa.Double, nullable=False),
        sa.Column("snapshot", sa.LargeBinary, nullable=False),
    )


def _create_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("session_id", sa.String(38), nullable=False, unique=True),
        sa.Column("node_id", sa.String(17), sa.ForeignKey("nodes.node_id"), nullable=False),
        sa.Column("request_id", sa.String(36), nullable=False),
        sa.Column("incarnation", sa.BigInteger, nullable=False),
        sa.Column("start_s", sa.Double, nullable=False),
        sa.Column("end_s", sa.Double),
        sa.Column("online_s", sa.Double),
        sa.Column("interrupted", sa.Boolean, nullable=False),
        sa.Column("end_reason", sa.Text, nullable=False),
        sa.UniqueConstraint("node_id", "request_id", name="uq_sessions_node_id_request_id"),
    )
    op.create_index("ix_sessions_node_id_number", "sessions", ["node_id", "number"])
    op.create_index("ix_sessions_interrupted_number", "sessions", ["interrupted", "number"])
    op.create_index("ix_sessions_end_s", "sessions", ["end_s"])


def downgrade() -> None:
    """Drops the tables, with all they hold."""
    for table in ("events", "sessions", "nodes", "registry"):
        op.drop_table(table)
