"""What is known of the nodes: events tell of changes at once, lists of slots now and then."""

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from peerloom.client.types import MachineLoad, Node, NodeEvent

EVENT_LIMIT = 300


class NetworkPage:
    """The nodes, the newest first of what happened to them, and the sequence number read so far."""

    def __init__(self) -> None:
        self.sequence = 0
        self._nodes: dict[str, Node] = {}
        self._changed_at: dict[str, int] = {}
        self._events: deque[NodeEvent] = deque(maxlen=EVENT_LIMIT)

    def apply(self, event: NodeEvent) -> None:
        """Takes a change of a node; of its load events don't tell, so that stays as it was listed."""
        self.sequence = event.sequence
        self._events.appendleft(event)
        if event.kind == "removed":
            self._nodes.pop(event.node.id, None)
        else:
            known = self._nodes.get(event.node.id)
            is_there = event.node.state in ("alive", "suspect")
            load = known.load if known is not None and is_there else None
            self._nodes[event.node.id] = replace(event.node, load=load)
        self._changed_at[event.node.id] = event.sequence

    def refresh(self, nodes: Iterable[Node], asked_at: int) -> None:
        """Takes a list that was asked for when `sequence` was `asked_at`; what changed since is newer."""
        listed = {node.id: node for node in nodes if self._changed_at.get(node.id, 0) <= asked_at}
        newer = {key: node for key, node in self._nodes.items() if self._changed_at.get(key, 0) > asked_at}
        self._nodes = listed | newer

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes as the page shows them; slots of one that isn't there are neither free nor used."""
        return [_node(node) for node in sorted(self._nodes.values(), key=lambda node: node.name)]

    def events(self) -> list[dict[str, Any]]:
        """What happened, newest first."""
        return [
            {
                "sequence": event.sequence,
                "time": event.time,
                "node": event.node.name,
                "kind": event.kind,
                "reason": event.reason,
                "online_s": event.online_s,
            }
            for event in self._events
        ]


def _node(node: Node) -> dict[str, Any]:
    there = node.state in ("alive", "suspect")
    used = node.slots - node.free_slots if there and node.free_slots is not None else None
    return {
        "id": node.id,
        "name": node.name,
        "state": node.state,
        "reason": node.reason,
        "slots": node.slots,
        "used": used,
        "draining": node.draining,
        "withheld": node.withheld,
        "owner": node.owner,
        "address": node.address,
        "via": node.via,
        "accelerators": [f"{one.count} {one.kind} {one.model}".strip() for one in node.accelerators],
        "gflops": node.speed.matmul_gflops if node.speed else None,
        "heartbeat_ms": _milliseconds(node.speed.heartbeat_s if node.speed else None),
        "load": _load(node.load),
        "last_seen": None if node.state == "alive" else node.last_seen_time,
    }


def _load(load: MachineLoad | None) -> dict[str, Any] | None:
    if load is None:
        return None
    return {
        "cpu": round(load.cpu_use, 2),
        "own_cpu": round(load.own_cpu_use, 2),
        "cores": load.cores,
        "memory": round(load.memory_use, 2),
        "memory_used_bytes": load.memory_used_bytes,
        "memory_total_bytes": load.memory_total_bytes,
        "gpu": load.gpu_use,
        "gpus": [asdict(gpu) for gpu in load.gpus],
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
