"""Names and versions of the models that jobs left."""

from collections import Counter

import sqlalchemy as sa
from alembic import op

from peerloom.services.trainer.jobs.specs import model_name
from peerloom.v1.trainer_pb2 import Job

revision = "trainer_0002"
down_revision = "trainer_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    versions = op.create_table(
        "model_versions",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("job_id", sa.String(64), nullable=False, unique=True),
    )
    known = sa.text("SELECT job_id, record FROM jobs WHERE model_digest <> '' ORDER BY number")
    counts: Counter[str] = Counter()
    for job_id, record in op.get_bind().execute(known).all():
        name = model_name(Job.FromString(record).spec)
        counts[name] += 1
        row = {"name": name, "version": counts[name], "job_id": job_id}
        op.get_bind().execute(sa.insert(versions).values(row))


def downgrade() -> None:
    op.drop_table("model_versions")
