"""Track records that fade, and speeds: what a node says of its own, and what was measured of it."""

import sqlalchemy as sa
from alembic import op

from peerloom.services.selector.tables import nodes_table

revision = "0002"
down_revision = "0001"

_TRACK = (
    "at_s",
    "exposure_s",
    "interruptions",
    "departures",
    "trainings",
    "unfinished",
    "transfers",
    "transfer_s",
    "transfer_bytes",
    "speeds",
    "speed_total",
)
_KIND_OF = {"transfers": 1, "trainings": 2, "unfinished": 3, "departures": 4, "interruptions": 5}


def upgrade() -> None:
    """Adds the table and fills it from the evidence, all of a node as if it were as new as the newest."""
    nodes = nodes_table(op.get_bind())
    for table in (nodes, "evidence"):
        op.add_column(table, sa.Column("speed_gflops", sa.Double, nullable=False, server_default="0"))
    op.create_table(
        "tracks",
        sa.Column("node_id", sa.String(64), sa.ForeignKey(f"{nodes}.node_id"), primary_key=True),
        *(sa.Column(name, sa.Double, nullable=False) for name in _TRACK),
    )
    sums = {
        "at_s": "MAX(e.time_s)",
        "exposure_s": "SUM(e.online_s)",
        "transfer_s": "SUM(e.delay_s)",
        "transfer_bytes": "SUM(e.transfer_bytes)",
        "speeds": "0",
        "speed_total": "0",
        **{name: f"SUM(CASE WHEN e.kind = {kind} THEN 1 ELSE 0 END)" for name, kind in _KIND_OF.items()},
    }
    values = ", ".join(f"COALESCE({sums[name]}, 0)" for name in _TRACK)
    op.execute(
        f"INSERT INTO tracks (node_id, {', '.join(_TRACK)}) SELECT n.node_id, {values} "
        f"FROM {nodes} n LEFT JOIN evidence e ON e.node_id = n.node_id GROUP BY n.node_id"
    )


def downgrade() -> None:
    """Drops what was added."""
    op.drop_table("tracks")
    for table in (nodes_table(op.get_bind()), "evidence"):
        op.drop_column(table, "speed_gflops")
