"""The rounds of averages within groups of ranks: each member sums up a part, and gives that to the others."""

from collections.abc import Sequence

from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
from peerloom.kit.sync_model.message_rounds import RECEIVES, SENDS, MessageRound
from peerloom.kit.sync_model.shared_ways import TrunkLoads, trunk_links


class GroupTopology:
    """All `groups` (of ranks, each rank once) average at once, values as they are.

    Ranks with the same link in groups of one size are simulated as one.
    """

    def __init__(self, network: SyncNetwork, groups: Sequence[Sequence[int]]) -> None:
        self._network = network
        size_of = {rank: len(group) for group in groups for rank in group}
        roles: dict[tuple[AccessLink, int], int] = {}
        for rank, link in enumerate(network.links):
            roles.setdefault((link, size_of.get(rank, 1)), rank)
        self._roles = tuple(roles)
        directions = (SENDS, RECEIVES) if network.is_full_duplex else (SENDS,)
        own = tuple(f"rank {rank} {one}" for rank in roles.values() for one in directions)
        self._first_trunk = len(own)
        self.links = (*own, *trunk_links(network, SENDS, RECEIVES))
        ways_by_size: dict[int, list[tuple[int, int]]] = {}
        for group in groups:
            ways = ways_by_size.setdefault(len(group), [])
            ways += [(one, other) for one in group for other in group if one != other]
        self._trunks = {size: TrunkLoads(network, ways) for size, ways in ways_by_size.items()}
        every = [way for ways in ways_by_size.values() for way in ways]
        self._delay_s = max((network.delay_s[one][other] for one, other in every), default=0.0)

    def rounds(self, values: int) -> tuple[MessageRound, ...]:
        """Push and pull are alike: each member sends and gets a part for each other one."""
        if all(size == 1 for _, size in self._roles):
            return ()
        busy = [
            one
            for size, trunks in self._trunks.items()
            for one in trunks.busy(_part_bytes(values, size), self._first_trunk)
        ]
        for place, (link, size) in enumerate(self._roles):
            up, down = (2 * place, 2 * place + 1) if self._network.is_full_duplex else (place, place)
            part_bytes = _part_bytes(values, size)
            sending_s = self._network.overhead_s + part_bytes * 8 / link.up_bits_per_s
            busy += [(up, (size - 1) * sending_s), (down, (size - 1) * part_bytes * 8 / link.down_bits_per_s)]
        sent = tuple((size - 1) * _part_bytes(values, size) for _, size in self._roles)
        loads = tuple(one for one in busy if one[1])
        return tuple(MessageRound(name, loads, self._delay_s, sent) for name in ("group push", "group pull"))


def _part_bytes(values: int, size: int) -> int:
    return -(-values // size) * VALUE_BYTES
