"""Whose a node is, by its certificate."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Adds the column; empty until the registry tells of the node again, as it does when its agent starts."""
    op.add_column("selector_nodes", sa.Column("owner", sa.String(63), nullable=False, server_default=""))


def downgrade() -> None:
    """Drops it."""
    op.drop_column("selector_nodes", "owner")
