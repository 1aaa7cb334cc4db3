"""Nodes, their online periods, and the services."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from peerloom.client.types.shown import ShownInNotebooks
from peerloom.kit.quantity_texts import plural

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
class GpuLoad:
    """How busy one GPU is: the part of the last moment in which it computed, 0 to 1, and bytes of its memory.

    `use` is None where the driver doesn't tell.
    """

    use: float | None
    memory_used_bytes: int
    memory_total_bytes: int

    def __str__(self) -> str:
        use = "?" if self.use is None else f"{self.use:.0%}"
        return f"{use}, {_of_bytes(self.memory_used_bytes, self.memory_total_bytes)}"


@dataclass(frozen=True)
class MachineLoad:
    """How busy a node's machine was over the last seconds, by all that runs there.

    `cpu_use` is the part of its `cores` in use, 0 to 1, `own_cpu_use` what the agent and its workers had of
    it; memory is in bytes, without what the kernel keeps of files and could drop. `gpus` are in CUDA's order,
    none where no driver tells. An agent in a container with limits tells of those.
    """

    cpu_use: float
    own_cpu_use: float
    cores: float
    memory_used_bytes: int
    memory_total_bytes: int
    gpus: tuple[GpuLoad, ...] = ()

    @property
    def memory_use(self) -> float:
        """The part of the memory in use, 0 to 1."""
        return min(1.0, self.memory_used_bytes / max(1, self.memory_total_bytes))

    @property
    def gpu_use(self) -> float | None:
        """The mean of the GPUs' use, 0 to 1; None where no driver tells."""
        told = [gpu.use for gpu in self.gpus if gpu.use is not None]
        return sum(told) / len(told) if told else None

    def __str__(self) -> str:
        cpu = f"cpu {self.cpu_use:.0%} of {self.cores:g} cores ({self.own_cpu_use:.0%} Peerloom's)"
        memory = f"memory {_of_bytes(self.memory_used_bytes, self.memory_total_bytes)}"
        gpus = [f"gpu {place} {gpu}" for place, gpu in enumerate(self.gpus)]
        return "; ".join([cpu, memory, *gpus])


def _of_bytes(used: int, total: int) -> str:
    return f"{used / 1e9:.1f} of {total / 1e9:.1f} GB"


@dataclass(frozen=True)
class Node(ShownInNotebooks):
    """A node as the registry knows it.

    `slots` is what it lends in all, `free_slots` what was free at its last heartbeat, `load` how busy its
    machine is (None: not known, as of an older agent, one that is away, or in an event). `online_s` is the
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
    load: MachineLoad | None = None

    def __str__(self) -> str:
        free = "" if self.free_slots is None else f", {self.free_slots} free"
        draining = ", draining" if self.draining else ""
        return f"{self.name} ({self.state}{draining}, {plural(self.slots, 'slot')}{free}) at {self.address}"


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
