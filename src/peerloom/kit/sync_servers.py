"""Which ranks hold the parts of a parameter server, and which of them sum a bucket. No torch, no network."""

from collections.abc import Sequence

from peerloom.kit.sync_method import SPREAD_BYTES


def server_ranks(count: int, named: Sequence[str], nodes: Sequence[str]) -> tuple[int, ...]:
    """The ranks that hold parts, in their order; `nodes` has each rank's.

    Those are all on the `named` nodes; where none of these is there, or none is named, the first `count` (0:
    all), and all where there are fewer.
    """
    return tuple(rank for rank, node in enumerate(nodes) if node in named) or tuple(
        range(min(count or len(nodes), len(nodes)))
    )


class ServerLoads:
    """What each of the `servers` has to sum in a step so far, alike on all that ask in the same order."""

    def __init__(self, servers: Sequence[int]) -> None:
        self._servers = tuple(servers)
        self._loads = [0] * len(self._servers)

    def owners_of_next(self, size_bytes: int) -> tuple[int, ...]:
        """Who sums the step's next message of so many bytes: all, a part each, if it has SPREAD_BYTES.

        One of less is summed by the server that has the fewest bytes of such so far, of equals the first.
        """
        if size_bytes >= SPREAD_BYTES:
            return self._servers
        place = self._loads.index(min(self._loads))
        self._loads[place] += size_bytes
        return (self._servers[place],)
