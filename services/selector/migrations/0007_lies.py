"""Proven lies, and who reported each fact: several voices about one node prove a lie."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Adds the columns; nobody has lied, and who reported the facts before isn't known."""
    op.add_column("evidence", sa.Column("reporter", sa.String(255), nullable=False, server_default=""))
    for table, kind in (("beliefs", sa.BigInteger()), ("history", sa.BigInteger()), ("tracks", sa.Double())):
        op.add_column(table, sa.Column("lies", kind, nullable=False, server_default="0"))


def downgrade() -> None:
    """Drops them."""
    for table in ("tracks", "history", "beliefs"):
        op.drop_column(table, "lies")
    op.drop_column("evidence", "reporter")
