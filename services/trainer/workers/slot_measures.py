"""What the workers of a job told of their slots."""

from collections import Counter
from collections.abc import Mapping, Sequence

RUNTIME_BYTES = 64e6  # that torch takes beside tensors once it trains: workspaces, threads, connections


def room_bytes(free_bytes: int, used_bytes: int, on_node: int, lent_bytes: int) -> float:
    """Memory that one of `on_node` workers has for its training, by what its node has free, and it uses.

    `lent_bytes` is what the owner lends for its slot; 0: no limit.
    """
    room = float(free_bytes // on_node)
    if lent_bytes:
        room = min(room, float(lent_bytes) - used_bytes)
    return max(0.0, room - RUNTIME_BYTES)


class SlotMeasures:
    """By worker; what isn't told is left out."""

    def __init__(self) -> None:
        self._compute_s: dict[str, float] = {}
        self._free_and_used: dict[str, tuple[int, int]] = {}

    def computed(self, worker_id: str, compute_s_per_sample: float) -> None:
        """A worker told how long it computes a sample (`speeds`); 0: it doesn't know."""
        self._compute_s[worker_id] = compute_s_per_sample

    def has_memory(self, worker_id: str, free_bytes: int, used_bytes: int) -> None:
        """A worker told what its node, or accelerator, has free, and what it uses itself; 0 free: unknown."""
        self._free_and_used[worker_id] = free_bytes, used_bytes

    def speeds(self) -> dict[str, float]:
        """Seconds of computing a sample, with a pipeline 1e9 operations."""
        return {worker_id: seconds for worker_id, seconds in self._compute_s.items() if seconds > 0}

    def sample_s(self, worker_id: str) -> float:
        """Of `speeds` that of one worker; 0 while it isn't known."""
        return self._compute_s.get(worker_id, 0.0)

    def rooms(
        self, worker_ids: Sequence[str], nodes: Mapping[str, str], lent_bytes: Mapping[str, int]
    ) -> dict[str, float]:
        """Bytes that each has for its training; those of one node divide what is free there.

        `nodes` by worker; `lent_bytes` for a slot by node, 0 or none: no limit.
        """
        on_node = Counter(nodes[worker_id] for worker_id in worker_ids)
        found = {}
        for worker_id in worker_ids:
            free_bytes, used_bytes = self._free_and_used.get(worker_id, (0, 0))
            node_id = nodes[worker_id]
            if free_bytes:
                lent = lent_bytes.get(node_id, 0)
                found[worker_id] = room_bytes(free_bytes, used_bytes, on_node[node_id], lent)
        return found
