"""Indices by which jobs are found, by the beginning of their ids and by state, however many there are."""

from alembic import op

revision = "trainer_0004"
down_revision = "trainer_0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("jobs_by_beginning", "jobs", ["job_id"], postgresql_ops={"job_id": "varchar_pattern_ops"})
    op.create_index("jobs_by_state", "jobs", ["state", "number"])
    op.drop_index("ix_jobs_state", "jobs")


def downgrade() -> None:
    op.create_index("ix_jobs_state", "jobs", ["state"])
    op.drop_index("jobs_by_state", "jobs")
    op.drop_index("jobs_by_beginning", "jobs")
