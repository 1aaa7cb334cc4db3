"""Jobs, their events, and the evidence that the selector has not yet acknowledged."""

import sqlalchemy as sa
from alembic import op

revision = "trainer_0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("job_id", sa.String(64), nullable=False, unique=True),
        sa.Column("request_id", sa.String(128), nullable=False, unique=True),
        sa.Column("state", sa.Integer, nullable=False, index=True),
        sa.Column("model_digest", sa.String(64), nullable=False, index=True),
        sa.Column("last_sequence", sa.BigInteger, nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.String(64), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True),
        sa.Column("event", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "evidence_outbox",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("evidence_id", sa.String(128), nullable=False, unique=True),
        sa.Column("evidence", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("evidence_outbox")
    op.drop_table("job_events")
    op.drop_table("jobs")
