"""What shows that a node has changed: suspicion, its newest speeds, and how long its sessions last."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
_ADDED = ("suspicion", "recent_speeds", "recent_speed_total", "session_logs", "session_log_squares")


def upgrade() -> None:
    """Adds the columns; nobody is suspected, and speeds and lengths of sessions are learnt from now on."""
    for name in _ADDED:
        op.add_column("tracks", sa.Column(name, sa.Double(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Drops them."""
    for name in reversed(_ADDED):
        op.drop_column("tracks", name)
