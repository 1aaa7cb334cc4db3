"""How fast a node's heartbeats are answered, as it says."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Adds the column; 0: it said nothing."""
    op.add_column("nodes", sa.Column("heartbeat_s", sa.Double, nullable=False, server_default="0"))


def downgrade() -> None:
    """Drops it."""
    op.drop_column("nodes", "heartbeat_s")
