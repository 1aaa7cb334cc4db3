"""What the workers of a job told of their slots."""

from collections import Counter
from collections.abc import Mapping, Sequence


class SlotMeasures:
    """By worker; what isn't told is left out."""

    def __init__(self) -> None:
        self._compute_s: dict[str, float] = {}
        self._free_bytes: dict[str, int] = {}

    def computed(self, worker_id: str, compute_s_per_sample: float) -> None:
        """A worker told how long it computes a sample (`speeds`); 0: it doesn't know."""
        self._compute_s[worker_id] = compute_s_per_sample

    def has_room(self, worker_id: str, free_bytes: int) -> None:
        """A worker told how much memory its node, or its accelerator, has free; 0: it doesn't know."""
        self._free_bytes[worker_id] = free_bytes

    def speeds(self) -> dict[str, float]:
        """Seconds of computing a sample, with a pipeline 1e9 operations."""
        return {worker_id: seconds for worker_id, seconds in self._compute_s.items() if seconds > 0}

    def rooms(self, worker_ids: Sequence[str], nodes: Mapping[str, str]) -> dict[str, float]:
        """Seconds as of `speeds`, were each worker as fast as it has memory; those of one node divide it."""
        on_node = Counter(nodes[worker_id] for worker_id in worker_ids)
        free = {worker_id: self._free_bytes.get(worker_id, 0) for worker_id in worker_ids}
        return {worker_id: on_node[nodes[worker_id]] / room for worker_id, room in free.items() if room}
