"""The rounds of sums by site: to the leaders, between them, and back."""

from collections.abc import Iterable, Sequence

from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
from peerloom.kit.sync_model.message_rounds import MessageBytes, MessageRound
from peerloom.kit.sync_model.shared_ways import RoleLinks, TrunkLoads


class SiteTopology:
    """Members send their values as they are to their leader, leaders exchange parts, and pass on the sums.

    `leaders` has for each rank the one that leads its site. Ranks with the same link and role are simulated
    as one.
    """

    def __init__(self, network: SyncNetwork, message_bytes: MessageBytes, leaders: Sequence[int]) -> None:
        self._network = network
        self._message_bytes = message_bytes
        self._sites = len(set(leaders))
        roles: dict[tuple[AccessLink, bool, int], int] = {}
        for rank, leader in enumerate(leaders):
            members = sum(one == rank for one in leaders) - 1 if leader == rank else 0
            roles.setdefault((network.links[rank], leader == rank, members), rank)
        self._roles = tuple(roles)
        self._role_links = RoleLinks(network, [f"rank {rank}" for rank in roles.values()])
        self.links = self._role_links.names
        inside = [(rank, leader) for rank, leader in enumerate(leaders) if rank != leader]
        between = [(one, other) for one in set(leaders) for other in set(leaders)]
        ways = (inside, between, between, [(leader, rank) for rank, leader in inside])
        self._delays_s = tuple(self._farthest(each) for each in ways)
        self._trunks = tuple(TrunkLoads(network, each) for each in ways)

    def rounds(self, values: int) -> tuple[MessageRound, ...]:
        if self._network.ranks == 1:
            return ()
        part, others = self._message_bytes(-(-values // self._sites)), self._sites - 1
        plain, whole = values * VALUE_BYTES, part * self._sites
        up = [(0, members * plain) if leads else (plain, 0) for _, leads, members in self._roles]
        across = [(others * part, others * part) if leads else (0, 0) for _, leads, _ in self._roles]
        down = [(members * whole, 0) if leads else (0, whole) for _, leads, members in self._roles]
        names, loads = ("up", "push", "pull", "down"), (up, across, across, down)
        shared = (
            trunks.busy(length, self._role_links.first_trunk)
            for trunks, length in zip(self._trunks, (plain, part, part, whole), strict=True)
        )
        named = zip(names, loads, self._delays_s, shared, strict=True)
        return tuple(self._round(name, load, delay_s, busy) for name, load, delay_s, busy in named)

    def _round(
        self,
        name: str,
        loads: Sequence[tuple[int, int]],
        delay_s: float,
        shared: Sequence[tuple[int, float]],
    ) -> MessageRound:
        taken_s = list[tuple[float, float]]()
        for (link, _, _), (sent, received) in zip(self._roles, loads, strict=True):
            overhead_s = self._network.overhead_s if sent else 0.0
            sending_s = overhead_s + sent * 8 / link.up_bits_per_s
            taken_s.append((sending_s, received * 8 / link.down_bits_per_s))
        busy = [*shared, *self._role_links.busy(taken_s)]
        return MessageRound(
            name, tuple(one for one in busy if one[1]), delay_s, tuple(sent for sent, _ in loads)
        )

    def _farthest(self, ways: Iterable[tuple[int, int]]) -> float:
        return max((self._network.delay_s[there][here] for there, here in ways), default=0.0)
