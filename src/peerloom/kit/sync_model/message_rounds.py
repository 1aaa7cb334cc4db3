"""The rounds of messages that make a bucket's sum on all ranks: what a topology gives, and a ring's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from peerloom.kit.sync_model.access_links import SyncNetwork
from peerloom.kit.sync_model.shared_ways import TrunkLoads, directions_of

MessageBytes = Callable[[int], int]


@dataclass(frozen=True)
class MessageRound:
    """Messages that leave together: how long each link is `busy` (link, seconds), and until all have arrived.

    `delay_s` comes after the last bit has left; `sent_bytes` is by role, of a rank in it. For `library_s` a
    thread of the library's is kept, which waits for what is on its way; 0: over sockets of our own.
    """

    name: str
    busy: tuple[tuple[int, float], ...]
    delay_s: float
    sent_bytes: tuple[int, ...]
    library_s: float = 0.0

    @property
    def alone_s(self) -> float:
        """How long they take if nothing else is under way."""
        return max([self.library_s, *(busy_s for _, busy_s in self.busy)]) + self.delay_s


class SumTopology(Protocol):
    """Which way values become their sum; `links` names those that its rounds use by number."""

    @property
    def links(self) -> tuple[str, ...]: ...

    def rounds(self, values: int) -> tuple[MessageRound, ...]:
        """Those of a bucket of so many values, one after the other."""


class RingTopology:
    """A ring all-reduce: 2 (n - 1) rounds in step, each as long as its slowest message.

    Equal links take 2 (n - 1) (a + bytes / n / rate): Patarasuk and Yuan, 2009. While one bucket waits for
    messages that are on their way another one's may leave, if the library has a thread for it.
    """

    def __init__(self, network: SyncNetwork, message_bytes: MessageBytes) -> None:
        self._network = network
        self._message_bytes = message_bytes
        self.links = directions_of(network)
        ranks = range(network.ranks)
        self._trunks = TrunkLoads(network, ((rank, (rank + 1) % network.ranks) for rank in ranks))

    def rounds(self, values: int) -> tuple[MessageRound, ...]:
        ranks = self._network.ranks
        if ranks == 1:
            return ()
        chunk_bytes = self._message_bytes(-(-values // ranks))
        count = 2 * (ranks - 1)
        # No round is over before what the ranks of a site send together has left it.
        shared_s = self._trunks.slowest_s(chunk_bytes)
        leaves_s = [max(self._leaves_s(rank, chunk_bytes), shared_s) for rank in range(ranks)]
        slowest_s = max(self._starts_s(rank) + leaves_s[rank] for rank in range(ranks))
        busy = tuple((link, count * max(leaves_s)) for link in range(len(self.links)))
        return (MessageRound("all-reduce", busy, 0.0, (count * chunk_bytes,), count * slowest_s),)

    def _leaves_s(self, rank: int, chunk_bytes: int) -> float:
        """How long a message keeps the links; with one direction at a time a rank gets another meanwhile."""
        network, after = self._network, (rank + 1) % self._network.ranks
        sends, gets = network.links[rank], network.links[after]
        if not network.is_full_duplex:
            return chunk_bytes * 8 * (1 / sends.up_bits_per_s + 1 / sends.down_bits_per_s)
        return chunk_bytes * 8 / min(sends.up_bits_per_s, gets.down_bits_per_s)

    def _starts_s(self, rank: int) -> float:
        """What starting a message from `rank` to the next one costs, its way included."""
        network, after = self._network, (rank + 1) % self._network.ranks
        back_s = network.delay_s[after][rank] if network.library_waits else 0.0
        return network.delay_s[rank][after] + back_s + network.overhead_s
