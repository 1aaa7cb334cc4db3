"""Nodes, their online periods, and the services."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from peerloom.client.types.shown import ShownInNotebooks

NodeState = Literal["alive", "suspect", "dead", "left", "unknown"]
ServiceName = Literal["registry", "selector", "trainer"]
NodeEventKind = Literal[
    "registered",
    "suspected",
    "refuted",
    "left",
    "interrupted",
    "drain_changed",
    "measured",
    "removed",
    "moved",
    "unknown",
]


@dataclass(frozen=True)
class Accelerator:
    """One kind of compute device that a node lends; `kind` is "cuda" or "cpu"."""

    kind: str
    model: str
    count: int
    memory_bytes: int


@dataclass(frozen=True)
class MachineSpeed:
    """What a node measured of its machine: 1e9 operations a second of one slot, and bytes a second.

    `training_gflops` is of training steps, `heartbeat_s` how fast the registry answers its heartbeats, in
    seconds; None while they aren't measured yet.
    """

    matmul_gflops: float
    memory_bytes_per_s: float
    disk_bytes_per_s: float
    training_gflops: float | None = None
    heartbeat_s: float | None = None
    measured_time: datetime | None = None


@dataclass(frozen=True)
class Node(ShownInNotebooks):
    """A node as the registry knows it.

    `slots` is what it lends in all, `free_slots` what was free at its last heartbeat. `online_s` is the
    length of its open session in seconds, None when it has none. `reason` says why it is in its state,
    `withheld` why its owner's limits lend nothing just now ("": they do lend). `owner` is whose it is, by its
    certificate ("" where there are none). With `relay` it passes connections on to those that nobody reaches;
    `via` is the name of the one that does so for this node ("": it is reached directly).
    """

    id: str
    name: str
    address: str
    state: NodeState
    reason: str
    slots: int
    free_slots: int | None
    accelerators: tuple[Accelerator, ...]
    speed: MachineSpeed | None
    labels: Mapping[str, str]
    draining: bool
    incarnation: int
    registered_time: datetime | None
    last_seen_time: datetime | None
    online_s: float | None
    withheld: str = ""
    owner: str = ""
    relay: bool = False
    via: str = ""

    def __str__(self) -> str:
        free = "" if self.free_slots is None else f", {self.free_slots} free"
        draining = ", draining" if self.draining else ""
        return f"{self.name} ({self.state}{draining}, {self.slots} slots{free}) at {self.address}"


@dataclass(frozen=True)
class NodeEvent:
    """A change of a node, which `node` shows as it was right after.

    `sequence` is its place in the log of the registry called `registry_id`, from 1; numbers grow, and have
    gaps where the registry has forgotten. `online_s` is the length of the session that ended with it, in
    seconds, else None.
    """

    sequence: int
    registry_id: str
    kind: NodeEventKind
    node: Node
    reason: str
    online_s: float | None
    time: datetime | None

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"{self.node.name} {self.kind.replace('_', ' ')}{why}"


@dataclass(frozen=True)
class Session(ShownInNotebooks):
    """One online period of a node; an interruption is one with `interrupted` set.

    `end_time` is None while it is open; `online_s` is its length by the registry's clock, in seconds.
    """

    id: str
    node_id: str
    node_name: str
    start_time: datetime | None
    end_time: datetime | None
    online_s: float
    interrupted: bool
    end_reason: str

    def __str__(self) -> str:
        how = "interrupted" if self.interrupted else "ended" if self.end_time else "open"
        return f"{self.node_name}: {self.online_s:.1f} s, {how}"


@dataclass(frozen=True)
class ServiceEndpoint(ShownInNotebooks):
    """Where a service is, and whether its health service says that it serves; `detail` says why not.

    One that `stands_by` serves nothing as long as another of its kind leads; it is healthy if it answers.
    """

    name: ServiceName
    address: str
    healthy: bool
    detail: str
    announced_time: datetime | None
    stands_by: bool = False

    def __str__(self) -> str:
        health = "healthy" if self.healthy else self.detail
        return f"{self.name} at {self.address}: {'stands by, ' if self.stands_by else ''}{health}"
