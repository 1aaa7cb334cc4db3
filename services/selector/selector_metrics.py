"""What the selector tells Prometheus of itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from peerloom.kit.metrics import Metric, MetricKind, Reading, Tally, enum_labels, reading
from peerloom.services.selector.catalog.columns import FREE, NodeColumns
from peerloom.services.selector.catalog.follower import Follower
from peerloom.services.selector.catalog.writer import CatalogWriter
from peerloom.v1.registry_pb2 import NodeState
from peerloom.v1.selector_pb2 import EvidenceKind

SELECTIONS = Metric(
    "peerloom_selector_selection_duration_seconds",
    MetricKind.HISTOGRAM,
    "How long choosing the nodes of a selection took; its count is that of all selections.",
)
NODES = Metric(
    "peerloom_selector_nodes",
    MetricKind.GAUGE,
    "Nodes in the catalog, by the state that the registry told; unknown: this registry never told any.",
    ("state",),
)
EVIDENCE = Metric(
    "peerloom_selector_evidence_taken_total",
    MetricKind.COUNTER,
    "Facts about nodes that were new and moved a belief, by kind.",
    ("kind",),
)
BELIEFS = Metric(
    "peerloom_selector_belief",
    MetricKind.GAUGE,
    "Spread of the beliefs in all nodes of the catalog: the one that so many in a hundred are at or below.",
    ("percentile",),
)
FOLLOWING = Metric(
    "peerloom_selector_follower_up",
    MetricKind.GAUGE,
    "1 while the registry's log of events is followed, 0 while it can't be read or is being caught up with.",
)
FOLLOWED_EVENT = Metric(
    "peerloom_selector_followed_event",
    MetricKind.GAUGE,
    "Number of the newest of the registry's events that was applied; compare peerloom_registry_newest_event.",
)
FOLLOWER_DELAY = Metric(
    "peerloom_selector_follower_delay_seconds",
    MetricKind.GAUGE,
    "How long after it happened the newest applied event was applied, by both machines' clocks.",
)
STATES = {0: "unknown", **enum_labels(NodeState, "NODE_STATE_")}
KINDS = enum_labels(EvidenceKind, "EVIDENCE_KIND_")
PERCENTILES = (0, 10, 50, 90, 100)


@dataclass(frozen=True)
class SelectorMetrics:
    """Reads a selector's parts; `chosen_s` is how long its selections took."""

    columns: NodeColumns
    writer: CatalogWriter
    follower: Follower
    chosen_s: Tally
    metrics: ClassVar[tuple[Metric, ...]] = (
        SELECTIONS,
        NODES,
        EVIDENCE,
        BELIEFS,
        FOLLOWING,
        FOLLOWED_EVENT,
        FOLLOWER_DELAY,
    )

    async def collect(self) -> Sequence[Reading]:
        """All as of now; takes a look at every node."""
        known = self.columns.state != FREE
        nodes = np.bincount(self.columns.state[known], minlength=len(STATES))
        beliefs = self.columns.belief[known]
        spread = np.percentile(beliefs, PERCENTILES, method="inverted_cdf") if len(beliefs) else ()
        counted = self.writer.counted
        return [
            reading(SELECTIONS, self.chosen_s),
            Reading(NODES, {(label,): float(nodes[state]) for state, label in STATES.items()}),
            Reading(EVIDENCE, {(label,): counted[kind] for kind, label in KINDS.items()}),
            Reading(BELIEFS, {(str(p),): float(b) for p, b in zip(PERCENTILES, spread, strict=False)}),
            reading(FOLLOWING, self.follower.is_following),
            reading(FOLLOWED_EVENT, self.follower.sequence),
            reading(FOLLOWER_DELAY, self.writer.delay_s),
        ]
