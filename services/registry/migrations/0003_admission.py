"""The door: tokens, and who was admitted by them."""

import sqlalchemy as sa
from alembic import op

revision = "registry_0003"
down_revision = "registry_0002"


def upgrade() -> None:
    """Creates the tables."""
    op.create_table(
        "join_tokens",
        sa.Column("token_id", sa.String(32), primary_key=True),
        sa.Column("proof_sha256", sa.String(64), nullable=False),
        sa.Column("uri", sa.String(512), nullable=False),
        sa.Column("made_by", sa.String(512), nullable=False),
        sa.Column("expires_s", sa.Double, nullable=False),
        sa.Column("used_s", sa.Double),
    )
    op.create_table(
        "admitted",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("uri", sa.String(512), nullable=False, unique=True),
        sa.Column("joined_s", sa.Double, nullable=False),
        sa.Column("revoked_s", sa.Double),
    )


def downgrade() -> None:
    """Forgets them: everybody has to join again."""
    op.drop_table("admitted")
    op.drop_table("join_tokens")
