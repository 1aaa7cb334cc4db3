"""The rounds of averages within groups of ranks: each member sums up a part, and gives that to the others."""

from collections.abc import Sequence

from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
from peerloom.kit.sync_model.message_rounds import MessageRound
from peerloom.kit.sync_model.shared_ways import RoleLinks, TrunkLoads


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
        self._role_links = RoleLinks(network, [f"rank {rank}" for rank in roles.values()])
        self.links = self._role_links.names
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
            for one in trunks.busy(_part_bytes(values, size), self._role_links.first_trunk)
        ]
        taken_s, sent = list[tuple[float, float]](), list[int]()
        for link, size in self._roles:
            others, part_bytes = size - 1, _part_bytes(values, size)
            sending_s = self._network.overhead_s + part_bytes * 8 / link.up_bits_per_s
            taken_s.append((others * sending_s, others * part_bytes * 8 / link.down_bits_per_s))
            sent.append(others * part_bytes)
        busy += self._role_links.busy(taken_s)
        loads = tuple(one for one in busy if one[1])
        names = ("group push", "group pull")
        return tuple(MessageRound(name, loads, self._delay_s, tuple(sent)) for name in names)


def _part_bytes(values: int, size: int) -> int:
    return -(-values // size) * VALUE_BYTES
