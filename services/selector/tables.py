"""The selector's tables. Double is eight bytes everywhere: a belief comes back to the last digit."""

import sqlalchemy as sa

from peerloom.services.selector.belief.track import TRACK

metadata = sa.MetaData()

# `number` is the order in which we met the nodes: loaded in it, a seeded choice repeats over restarts.
nodes = sa.Table(
    "selector_nodes",
    metadata,
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
    sa.Column("speed_gflops", sa.Double, nullable=False),
    sa.Column("heartbeat_s", sa.Double, nullable=False),
    sa.Column("owner", sa.String(63), nullable=False),
)


def nodes_table(connection: sa.Connection) -> str:
    """What the table of nodes is called while migrations run: "nodes" until the fifth one has renamed it."""
    return nodes.name if sa.inspect(connection).has_table(nodes.name) else "nodes"


# One row for each row of `nodes`, zeros before any evidence.
beliefs = sa.Table(
    "beliefs",
    metadata,
    sa.Column("node_id", sa.String(64), sa.ForeignKey("selector_nodes.node_id"), primary_key=True),
    sa.Column("transmissions", sa.BigInteger, nullable=False),
    sa.Column("trainings", sa.BigInteger, nullable=False),
    sa.Column("delay_total_s", sa.Double, nullable=False),
    sa.Column("ended_online_log", sa.Double, nullable=False),
    sa.Column("interruptions", sa.BigInteger, nullable=False),
    sa.Column("unfinished", sa.BigInteger, nullable=False),
    sa.Column("belief", sa.Double, nullable=False),
    sa.Column("updates", sa.BigInteger, nullable=False),
    sa.Column("lies", sa.BigInteger, nullable=False),
    sa.Index("beliefs_by_height", "belief", "node_id"),
)

# One row for each row of `nodes`: faded as of `at_s`, see belief/track.py.
tracks = sa.Table(
    "tracks",
    metadata,
    sa.Column("node_id", sa.String(64), sa.ForeignKey("selector_nodes.node_id"), primary_key=True),
    *(sa.Column(name, sa.Double, nullable=False) for name in TRACK),
)

evidence = sa.Table(
    "evidence",
    metadata,
    sa.Column("evidence_id", sa.String(192), primary_key=True),
    sa.Column("node_id", sa.String(64), sa.ForeignKey("selector_nodes.node_id"), nullable=False),
    sa.Column("kind", sa.Integer, nullable=False),
    sa.Column("time_s", sa.Double, nullable=False),
    sa.Column("delay_s", sa.Double, nullable=False),
    sa.Column("online_s", sa.Double, nullable=False),
    sa.Column("transfer_bytes", sa.BigInteger, nullable=False),
    sa.Column("job_id", sa.String(128), nullable=False),
    sa.Column("detail", sa.String(512), nullable=False),
    sa.Column("speed_gflops", sa.Double, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("reporter", sa.String(255), nullable=False),
    sa.Index("evidence_by_node", "node_id"),
)

# Update `number` of a node, with every term of the formula and the weights in force.
history = sa.Table(
    "history",
    metadata,
    sa.Column("node_id", sa.String(64), sa.ForeignKey("selector_nodes.node_id"), primary_key=True),
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
    sa.Column("lies", sa.BigInteger, nullable=False),
    sa.Column("score_new", sa.Double, nullable=False),
    sa.Column("time_score", sa.Double, nullable=False),
    sa.Column("score_reduce", sa.Double, nullable=False),
    sa.Column("weight_score_old", sa.Double, nullable=False),
    sa.Column("weight_transmission", sa.Double, nullable=False),
    sa.Column("weight_train", sa.Double, nullable=False),
    sa.Column("weight_delay", sa.Double, nullable=False),
    sa.Column("weight_time_score_cap", sa.Double, nullable=False),
    sa.Index("history_by_evidence", "evidence_id"),
)

# One row: how far the registry's log has been read.
cursor = sa.Table(
    "cursor",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("registry_id", sa.String(128), nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
)
