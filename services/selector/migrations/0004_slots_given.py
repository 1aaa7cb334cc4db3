"""How many slots a node gave, as whoever got them reports it."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Adds the columns, and forgets speeds: they were told of jobs that can't be compared."""
    op.add_column("evidence", sa.Column("slots", sa.Integer, nullable=False, server_default="0"))
    op.add_column("tracks", sa.Column("slots_given", sa.Double, nullable=False, server_default="0"))
    op.execute("UPDATE tracks SET speeds = 0, speed_total = 0")


def downgrade() -> None:
    """Drops them."""
    op.drop_column("tracks", "slots_given")
    op.drop_column("evidence", "slots")
