"""How fast a node's heartbeats are answered, as it says."""

import sqlalchemy as sa
from alembic import op

from peerloom.services.selector.tables import nodes_table

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Adds the column; 0: it said nothing."""
    op.add_column(
        nodes_table(op.get_bind()), sa.Column("heartbeat_s", sa.Double, nullable=False, server_default="0")
    )


def downgrade() -> None:
    """Drops it."""
    op.drop_column(nodes_table(op.get_bind()), "heartbeat_s")
