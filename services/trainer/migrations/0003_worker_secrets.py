"""What each living worker proves itself with."""

import sqlalchemy as sa
from alembic import op

revision = "trainer_0003"
down_revision = "trainer_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "worker_secrets",
        sa.Column("worker_id", sa.String(64), primary_key=True),
        sa.Column("job_id", sa.String(64), nullable=False, index=True),
        sa.Column("secret", sa.String(64), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("worker_secrets")
