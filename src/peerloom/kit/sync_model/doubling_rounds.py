"""The rounds of recursive doubling: whole messages between two at a time, over ways of unequal length."""

from collections.abc import Sequence
from itertools import pairwise

from peerloom.kit.doubling_partners import doubling_place, round_count
from peerloom.kit.sync_model.access_links import SyncNetwork
from peerloom.kit.sync_model.message_rounds import MessageBytes, MessageRound
from peerloom.kit.sync_model.shared_ways import TrunkLoads, directions_of


class DoublingTopology:
    """log2(n) swaps of whole messages, and two more where n is no power of two (`kit.doubling_partners`).

    A round is as long as its slowest message. Who has a short way begins the next one sooner, so the delays
    are those of the slowest chain of messages. Messages of other buckets follow while some are on their way.
    """

    def __init__(self, network: SyncNetwork, message_bytes: MessageBytes) -> None:
        self._network = network
        self._message_bytes = message_bytes
        self.links = directions_of(network)
        places = [doubling_place(rank, network.ranks) for rank in range(network.ranks)]
        given = [(rank, place.gives_to) for rank, place in enumerate(places) if place.gives_to is not None]
        swaps = [
            [(rank, place.rounds[number].partner) for rank, place in enumerate(places) if place.rounds]
            for number in range(round_count(network.ranks))
        ]
        back = [(taker, giver) for giver, taker in given]
        self._rounds = [*([given] if given else []), *swaps, *([back] if given else [])]
        self._delays_s = self._chained()
        self._trunks = [TrunkLoads(network, pairs) for pairs in self._rounds]

    def rounds(self, values: int) -> tuple[MessageRound, ...]:
        length = self._message_bytes(values)
        found = []
        each = zip(self._names(), self._rounds, self._delays_s, self._trunks, strict=True)
        for name, pairs, delay_s, trunks in each:
            sent_bytes = (
                length if any(sender == 0 for sender, _ in pairs) else 0
            )  # none sends more than rank 0
            found.append(
                MessageRound(
                    name, self._busy(pairs, length, trunks.slowest_s(length)), delay_s, (sent_bytes,)
                )
            )
        return tuple(found)

    def _names(self) -> list[str]:
        swaps = [f"swap {number}" for number in range(1, round_count(self._network.ranks) + 1)]
        return ["give", *swaps, "give back"] if len(self._rounds) > len(swaps) else swaps

    def _busy(
        self, pairs: Sequence[tuple[int, int]], length: int, shared_s: float
    ) -> tuple[tuple[int, float], ...]:
        """Both directions take as long as the slowest pair; one at a time takes the sum of them."""
        links, overhead_s = self._network.links, self._network.overhead_s
        bits = 8 * length
        if self._network.is_full_duplex:
            slowest_s = max(
                bits / min(links[sender].up_bits_per_s, links[taker].down_bits_per_s)
                for sender, taker in pairs
            )
            slowest_s = max(slowest_s, shared_s)
            return (0, overhead_s + slowest_s), (1, slowest_s)
        used_s = [0.0] * len(links)
        for sender, taker in pairs:
            used_s[sender] += overhead_s + bits / links[sender].up_bits_per_s
            used_s[taker] += bits / links[taker].down_bits_per_s
        return ((0, max(*used_s, shared_s)),)

    def _chained(self) -> list[float]:
        """By how much each round's delays make the longest chain of messages longer."""
        ready_s, longest_s = [0.0] * self._network.ranks, [0.0]
        for pairs in self._rounds:
            came_s = list(ready_s)
            for sender, taker in pairs:
                arrives_s = ready_s[sender] + self._network.delay_s[sender][taker]
                came_s[taker] = max(came_s[taker], arrives_s)
            ready_s = came_s
            longest_s.append(max(longest_s[-1], *ready_s))
        return [after - before for before, after in pairwise(longest_s)]
