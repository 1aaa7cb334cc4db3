"""The trainer's tables. A job and an event are kept as the messages that the API shows."""

import sqlalchemy as sa

metadata = sa.MetaData()

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("job_id", sa.String(64), nullable=False, unique=True),
    sa.Column("request_id", sa.String(128), nullable=False, unique=True),
    sa.Column("state", sa.Integer, nullable=False),
    sa.Column("model_digest", sa.String(64), nullable=False, index=True),
    sa.Column("last_sequence", sa.BigInteger, nullable=False),
    sa.Column("record", sa.LargeBinary, nullable=False),
    # On PostgreSQL an index in the language's order doesn't find what begins so.
    sa.Index("jobs_by_beginning", "job_id", postgresql_ops={"job_id": "varchar_pattern_ops"}),
    sa.Index("jobs_by_state", "state", "number"),
)

model_versions = sa.Table(
    "model_versions",
    metadata,
    sa.Column("name", sa.String(63), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("job_id", sa.String(64), nullable=False, unique=True),
)

job_events = sa.Table(
    "job_events",
    metadata,
    sa.Column("job_id", sa.String(64), primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True),
    sa.Column("event", sa.LargeBinary, nullable=False),
)

worker_secrets = sa.Table(
    "worker_secrets",
    metadata,
    sa.Column("worker_id", sa.String(64), primary_key=True),
    sa.Column("job_id", sa.String(64), nullable=False, index=True),
    sa.Column("secret", sa.String(64), nullable=False),
)

evidence_outbox = sa.Table(
    "evidence_outbox",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("evidence_id", sa.String(128), nullable=False, unique=True),
    sa.Column("evidence", sa.LargeBinary, nullable=False),
)
