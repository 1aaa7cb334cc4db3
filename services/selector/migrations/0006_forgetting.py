"""Nodes may be forgotten: their evidence is found without a look at all of it."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Makes the indices."""
    op.create_index("evidence_by_node", "evidence", ["node_id"])
    op.create_index("history_by_evidence", "history", ["evidence_id"])


def downgrade() -> None:
    """Drops them."""
    op.drop_index("history_by_evidence", "history")
    op.drop_index("evidence_by_node", "evidence")
