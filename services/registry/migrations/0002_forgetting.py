"""Nodes and events may be forgotten: events stand alone, and the registry knows up to where some are gone."""

import sqlalchemy as sa
from alembic import op

revision = "registry_0002"
down_revision = "registry_0001"

_COLUMNS = "sequence, kind, node_id, time_s, reason, online_s, snapshot"


def upgrade() -> None:
    """Makes the events' table anew, since SQLite can't take a foreign key off one."""
    op.add_column(
        "registry", sa.Column("forgotten_sequence", sa.BigInteger, nullable=False, server_default="0")
    )
    _replace_events()
    op.create_index("ix_events_node_id_sequence", "events", ["node_id", "sequence"])


def _replace_events(*constraints: sa.Constraint) -> None:
    op.rename_table("events", "former_events")
    op.create_table(
        "events",
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("node_id", sa.String(17), nullable=False),
        sa.Column("time_s", sa.Double, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("online_s", sa.Double, nullable=False),
        sa.Column("snapshot", sa.LargeBinary, nullable=False),
        *constraints,
    )
    op.execute(f"INSERT INTO events ({_COLUMNS}) SELECT {_COLUMNS} FROM former_events")
    op.drop_table("former_events")


def downgrade() -> None:
    """Puts the foreign key back; events of forgotten nodes go."""
    op.drop_index("ix_events_node_id_sequence", "events")
    op.execute("DELETE FROM events WHERE node_id NOT IN (SELECT node_id FROM nodes)")
    _replace_events(sa.ForeignKeyConstraint(["node_id"], ["nodes.node_id"]))
    op.drop_column("registry", "forgotten_sequence")
