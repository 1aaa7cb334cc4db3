"""The first schema: catalog, beliefs, evidence, history and the cursor into the registry's log."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Creates the tables."""
    _create_nodes()
    _create_beliefs()
    op.create_table(
        "evidence",
        sa.Column("evidence_id", sa.String(192), primary_key=True),
        _node_reference(),
        sa.Column("kind", sa.Integer, nullable=False),
        sa.Column("time_s", sa.Double, nullable=False),
        sa.Column("delay_s", sa.Double, nullable=False),
        sa.Column("online_s", sa.Double, nullable=False),
        sa.Column("transfer_bytes", sa.BigInteger, nullable=False),
        sa.Column("job_id", sa.String(128), nullable=False),
        sa.Column("detail", sa.String(512), nullable=False),
    )
    _create_history()
    op.create_table(
        "cursor",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("registry_id", sa.String(128), nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
    )


def _node_reference(*, primary_key: bool = False) -> sa.Column[str]:
    return sa.Column(
        "node_id",
        sa.String(64),
        sa.ForeignKey("selector_nodes.node_id"),
        primary_key=primary_key,
        nullable=False,
    )


def _create_nodes() -> None:
    op.create_table(
        "selector_nodes",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("node_id", sa.String(64), nullable=False, unique=True),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("address", sa.String(255), nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("state", sa.Integer, nullable=False),
        sa.Column("draining", sa.Boolean, nullable=False),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("accelerators", sa.JSON, nullable=False),
        sa.Column("session_start_s", sa.Double),
    )


def _create_beliefs() -> None:
    op.create_table(
        "beliefs",
        _node_reference(primary_key=True),
        sa.Column("transmissions", sa.BigInteger, nullable=False),
        sa.Column("trainings", sa.BigInteger, nullable=False),
        sa.Column("delay_total_s", sa.Double, nullable=False),
        sa.Column("ended_online_log", sa.Double, nullable=False),
        sa.Column("interruptions", sa.BigInteger, nullable=False),
        sa.Column("unfinished", sa.BigInteger, nullable=False),
        sa.Column("belief", sa.Double, nullable=False),
        sa.Column("updates", sa.BigInteger, nullable=False),
    )
    op.create_index("beliefs_by_height", "beliefs", ["belief", "node_id"])


def _create_history() -> None:
    op.create_table(
        "history",
        _node_reference(primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("evidence_id", sa.String(192), sa.ForeignKey("evidence.evidence_id"), nullable=False),
        sa.Column("update_time_s", sa.Double, nullable=False),
        sa.Column("belief", sa.Double, nullable=False),
        sa.Column("score_old", sa.Double, nullable=False),
        sa.Column("transmissions", sa.BigInteger, nullable=False),
        sa.Column("trainings", sa.BigInteger, nullable=False),
        sa.Column("delay_s", sa.Double, nullable=False),
        sa.Column("ended_online_log", sa.Double, nullable=False),
        sa.Column("open_online_s", sa.Double, nullable=False),
        sa.Column("interruptions", sa.BigInteger, nullable=False),
        sa.Column("unfinished", sa.BigInteger, nullable=False),
        sa.Column("score_new", sa.Double, nullable=False),
        sa.Column("time_score", sa.Double, nullable=False),
        sa.Column("score_reduce", sa.Double, nullable=False),
        sa.Column("weight_score_old", sa.Double, nullable=False),
        sa.Column("weight_transmission", sa.Double, nullable=False),
        sa.Column("weight_train", sa.Double, nullable=False),
        sa.Column("weight_delay", sa.Double, nullable=False),
        sa.Column("weight_time_score_cap", sa.Double, nullable=False),
    )


def downgrade() -> None:
    """Drops the tables, with all they hold."""
    for table in ("cursor", "history", "evidence", "beliefs", "selector_nodes"):
        op.drop_table(table)
