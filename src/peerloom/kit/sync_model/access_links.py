"""The network between the ranks, as the model sees it: a link a rank, and what starting a message costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.errors import InvalidArgumentError

MOST_RANKS = 1024
_GLOO_THREADS = 2  # of torch's process group, each for one collective at a time


@dataclass(frozen=True)
class AccessLink:
    """What a rank can send and get at once, in bits/s, both above 0."""

    up_bits_per_s: float
    down_bits_per_s: float

    def __post_init__(self) -> None:
        for rate in (self.up_bits_per_s, self.down_bits_per_s):
            if not 0 < rate < math.inf:
                raise InvalidArgumentError.of_field("the rate of a link", rate, "above 0 bits/s")


@dataclass(frozen=True)
class Trunk:
    """The way to all others that the `ranks` of one site share: between themselves they have a faster one."""

    ranks: tuple[int, ...]
    link: AccessLink


@dataclass(frozen=True)
class SyncNetwork:
    """The ranks' links, and the start-up between them.

    `delay_s[i][j]` is how long an empty message from rank i to rank j is on its way (one way); `overhead_s`
    what a message costs its sender besides. `servers` are links of machines that only keep parameters (none:
    ranks do). Without `is_full_duplex` a link carries both directions in turn. `library_waits`: a message of
    the library's collectives waits for its receiver's word, as gloo's do, so that each round costs a whole
    round trip. `nodes` names each rank's; empty: "node-1" and so on, one a rank. `trunks` are those of sites,
    of which no two have a rank in common. Raises InvalidArgumentError.
    """

    links: tuple[AccessLink, ...]
    delay_s: tuple[tuple[float, ...], ...]
    overhead_s: float = 0.0
    servers: tuple[AccessLink, ...] = ()
    is_full_duplex: bool = True
    library_waits: bool = True
    nodes: tuple[str, ...] = ()
    trunks: tuple[Trunk, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.links) <= MOST_RANKS:
            raise InvalidArgumentError.of_field("ranks", len(self.links), f"from 1 to {MOST_RANKS}")
        delays = [delay for row in self.delay_s for delay in row]
        if [len(row) for row in self.delay_s] != [self.ranks] * self.ranks:
            raise InvalidArgumentError.of_field("delay_s", len(self.delay_s), "a row and a column a rank")
        shared = [rank for trunk in self.trunks for rank in trunk.ranks]
        if len(set(shared)) != len(shared) or not set(shared) <= set(range(self.ranks)):
            raise InvalidArgumentError.of_field("ranks of trunks", shared, "each rank once")
        for time_s in (*delays, self.overhead_s):
            if not 0 <= time_s < math.inf:
                raise InvalidArgumentError.of_field("a start-up", time_s, "at least 0 s")

    @property
    def ranks(self) -> int:
        """How many there are."""
        return len(self.links)

    @property
    def node_names(self) -> tuple[str, ...]:
        """The node of each rank."""
        return self.nodes or tuple(f"node-{rank + 1}" for rank in range(self.ranks))

    @property
    def library_threads(self) -> int:
        """How many of the library's collectives run at once; but for gloo's threads one after the other."""
        return _GLOO_THREADS if self.library_waits else 1

    @property
    def farthest_s(self) -> float:
        """How long an empty message between the farthest two is on its way."""
        return max(map(max, self.delay_s))

    @classmethod
    def of_access(cls, links: Sequence[AccessLink], delays_s: Sequence[float]) -> "SyncNetwork":
        """Each rank behind its link, whose delay is one way; between two ranks both their delays count."""
        delays = tuple(
            tuple(0.0 if i == j else one + other for j, other in enumerate(delays_s))
            for i, one in enumerate(delays_s)
        )
        return cls(tuple(links), delays)

    @classmethod
    def uniform(
        cls,
        ranks: int,
        bits_per_s: float,
        delay_s: float = 0.0,
        *,
        up_bits_per_s: float | None = None,
        overhead_s: float = 0.0,
        servers: int = 0,
    ) -> "SyncNetwork":
        """Equal links, `delay_s` from each to each; `up_bits_per_s` None: as down."""
        if not 1 <= ranks <= MOST_RANKS:
            raise InvalidArgumentError.of_field("ranks", ranks, f"from 1 to {MOST_RANKS}")
        link = AccessLink(bits_per_s if up_bits_per_s is None else up_bits_per_s, bits_per_s)
        delays = tuple(tuple(0.0 if i == j else delay_s for j in range(ranks)) for i in range(ranks))
        return cls((link,) * ranks, delays, overhead_s, (link,) * servers)
