"""Into which pieces a bucket is cut, and who owns the parts of each. No torch, no network."""

from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.kit.sync_method import CUT, DIRECT, SyncMethod
from peerloom.kit.sync_servers import ServerLoads, server_ranks


@dataclass(frozen=True)
class BucketPiece:
    """The values from `start` to `end` of a bucket, of which each of `owners` has an equal part."""

    start: int
    end: int
    owners: tuple[int, ...]


def piece_bounds(method: SyncMethod, length: int, value_bytes: int) -> list[tuple[int, int]]:
    """Where the pieces of a bucket of so many values of so many bytes begin and end."""
    most = max(1, method.size_bytes // value_bytes) if method.schedule == CUT else length
    return [(start, min(length, start + most)) for start in range(0, length, most)]


class BucketOwners:
    """Who owns what, in a group of ranks on these `nodes`: the same on all that ask in the same order.

    `servers` are the ranks that own parts.
    """

    def __init__(self, method: SyncMethod, nodes: Sequence[str]) -> None:
        self._method = method
        self.servers = server_ranks(method.servers, method.server_nodes, nodes)
        self._loads = ServerLoads(self.servers)

    def begin_step(self) -> None:
        """The buckets of a new step come, and in the same order go to the same owners."""
        self._loads = ServerLoads(self.servers)

    def pieces(self, length: int, value_bytes: int) -> list[BucketPiece]:
        """The pieces of the step's next bucket, which has so many values of so many bytes.

        With `direct` all ranks own a part of each piece, else those that `ServerLoads` says.
        """
        bounds = piece_bounds(self._method, length, value_bytes)
        return [BucketPiece(start, end, self._owned_by((end - start) * value_bytes)) for start, end in bounds]

    def _owned_by(self, size_bytes: int) -> tuple[int, ...]:
        return self.servers if self._method.topology == DIRECT else self._loads.owners_of_next(size_bytes)
