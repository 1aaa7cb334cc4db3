"""What the registry tells Prometheus of itself."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from peerloom.kit.metrics import Metric, MetricKind, Reading, enum_labels, reading
from peerloom.services.registry.core import Core
from peerloom.v1.registry_pb2 import NODE_EVENT_KIND_INTERRUPTED, NodeState, ServiceKind

NODES = Metric(
    "peerloom_registry_nodes",
    MetricKind.GAUGE,
    "Nodes that the registry knows, by their state.",
    ("state",),
)
HEARTBEATS = Metric(
    "peerloom_registry_heartbeats_received_total",
    MetricKind.COUNTER,
    "Heartbeats of nodes with an open lease.",
)
INTERRUPTIONS = Metric(
    "peerloom_registry_interruptions_total",
    MetricKind.COUNTER,
    "Sessions of nodes that ended without notice.",
)
WATCHERS = Metric(
    "peerloom_registry_watchers",
    MetricKind.GAUGE,
    "Watches of nodes' events that are open now.",
)
NEWEST_EVENT = Metric(
    "peerloom_registry_newest_event",
    MetricKind.GAUGE,
    "Number of the newest event in the log of nodes' events.",
)
SERVICES = Metric(
    "peerloom_registry_announced_services",
    MetricKind.GAUGE,
    "Selectors and trainers whose announcement stands, by kind.",
    ("kind",),
)
COMMIT_QUEUE = Metric(
    "peerloom_registry_commit_queue_length", MetricKind.GAUGE, "Changes of nodes that wait to be written."
)
STATES = enum_labels(NodeState, "NODE_STATE_")
KINDS = enum_labels(ServiceKind, "SERVICE_KIND_")


@dataclass(frozen=True)
class RegistryMetrics:
    """Reads a registry's parts."""

    core: Core
    metrics: ClassVar[tuple[Metric, ...]] = (
        NODES,
        HEARTBEATS,
        INTERRUPTIONS,
        WATCHERS,
        NEWEST_EVENT,
        SERVICES,
        COMMIT_QUEUE,
    )

    async def collect(self) -> Sequence[Reading]:
        """All as of now; takes a look at every node."""
        core = self.core
        nodes: Counter[int] = Counter(member.record.state for member in core.table.by_id.values())
        services: Counter[int] = Counter(found.kind for found in core.announcements.standing())
        return [
            Reading(NODES, {(label,): nodes[state] for state, label in STATES.items()}),
            reading(HEARTBEATS, core.registrar.heartbeats),
            reading(INTERRUPTIONS, core.feed.published[NODE_EVENT_KIND_INTERRUPTED]),
            reading(WATCHERS, core.feed.watchers),
            reading(NEWEST_EVENT, core.feed.newest),
            Reading(SERVICES, {(label,): services[kind] for kind, label in KINDS.items()}),
            reading(COMMIT_QUEUE, core.commits.waiting),
        ]
