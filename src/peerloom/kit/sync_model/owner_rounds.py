"""The rounds of sums by owners: everybody's values to who sums them up, and the sums to all.

Links that are busy alike are simulated as one: equal ranks in the same role have one pair of links together.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
from peerloom.kit.sync_model.message_rounds import MessageBytes, MessageRound
from peerloom.kit.sync_model.shared_ways import RoleLinks, TrunkLoads

NO_RANK = -1


@dataclass(frozen=True)
class _Role:
    """Ranks that are simulated as one, of which `rank` is the first; NO_RANK: a server that is no worker."""

    link: AccessLink
    rank: int


class _Roles:
    """Of a network whose `owners` own parts; those `apart` are never simulated as one with others."""

    def __init__(self, network: SyncNetwork, owners: Sequence[int], apart: Set[int]) -> None:
        firsts: dict[tuple[AccessLink, bool, int], tuple[str, _Role]] = {}
        for rank, link in enumerate(network.links):
            key = (link, rank in owners, rank if rank in apart else NO_RANK)
            firsts.setdefault(key, (f"rank {rank}", _Role(link, rank)))
        for number, link in enumerate(() if owners else network.servers):
            firsts.setdefault((link, True, NO_RANK), (f"server {number}", _Role(link, NO_RANK)))
        names = [name for name, _ in firsts.values()]
        self.links = RoleLinks(network, names if len(names) > 1 else [""])
        self._roles = tuple(role for _, role in firsts.values())

    def __iter__(self) -> Iterator[_Role]:
        return iter(self._roles)


class OwnersTopology:
    """Each owner gets everybody's values for its part (push), and gives the sum to all (pull).

    The `owners` are ranks; without any, they are the network's servers. A worker moves 2 D bytes, or 2 D
    (owners - 1) / owners if it owns a part; an owner that isn't a worker 2 n D / owners. Links are queues:
    messages of other buckets follow while some are on their way. Of owners `apart` one may own a bucket alone
    (`owned_by`).
    """

    def __init__(
        self,
        network: SyncNetwork,
        message_bytes: MessageBytes,
        owners: Sequence[int],
        apart: Set[int] = frozenset(),
        roles: _Roles | None = None,
    ) -> None:
        self._network = network
        self._message_bytes = message_bytes
        self._owner_ranks = tuple(owners)
        self.owners = len(owners or network.servers)
        self._push_s, self._pull_s = self._delays()
        self._roles = roles or _Roles(network, owners, apart)
        self.links = self._roles.links.names
        ranks = range(network.ranks)
        self._pushed = TrunkLoads(network, ((rank, owner) for rank in ranks for owner in owners))
        self._pulled = TrunkLoads(network, ((owner, rank) for rank in ranks for owner in owners))

    def owned_by(self, owners: Sequence[int]) -> "OwnersTopology":
        """The same for a bucket of these `owners`: all of this one's, or one of those apart."""
        if tuple(owners) == self._owner_ranks:
            return self
        return OwnersTopology(self._network, self._message_bytes, owners, roles=self._roles)

    def rounds(self, values: int) -> tuple[MessageRound, ...]:
        if self._network.ranks == 1:
            return ()
        part_bytes = self._message_bytes(-(-values // self.owners))
        push = [self._messages_of(role) for role in self._roles]
        pull = [(collects, pushes) for pushes, collects in push]
        return (
            self._round("push", push, part_bytes, self._push_s, self._pushed),
            self._round("pull", pull, part_bytes, self._pull_s, self._pulled),
        )

    def _messages_of(self, role: _Role) -> tuple[int, int]:
        """How many parts a rank of the role pushes to others, and how many it collects from them."""
        if role.rank == NO_RANK:
            return 0, self._network.ranks
        if role.rank in self._owner_ranks:
            return self.owners - 1, self._network.ranks - 1
        return self.owners, 0

    def _round(
        self,
        name: str,
        counts: list[tuple[int, int]],
        part_bytes: int,
        delay_s: float,
        trunks: TrunkLoads,
    ) -> MessageRound:
        taken_s = list[tuple[float, float]]()
        for role, (sent, received) in zip(self._roles, counts, strict=True):
            sending_s = sent * (self._network.overhead_s + part_bytes * 8 / role.link.up_bits_per_s)
            taken_s.append((sending_s, received * part_bytes * 8 / role.link.down_bits_per_s))
        links = self._roles.links
        busy = trunks.busy(part_bytes, links.first_trunk) + links.busy(taken_s)
        sent_bytes = tuple(sent * part_bytes for sent, _ in counts)
        return MessageRound(name, tuple(one for one in busy if one[1]), delay_s, sent_bytes)

    def _delays(self) -> tuple[float, float]:
        """Of the farthest message to an owner, and of the farthest from one."""
        network = self._network
        owners = self._owner_ranks or range(network.ranks)
        ways = [
            (network.delay_s[rank][owner], network.delay_s[owner][rank])
            for rank in range(network.ranks)
            for owner in owners
        ]
        return max(there for there, _ in ways), max(back for _, back in ways)
