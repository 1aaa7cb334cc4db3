"""The rounds of messages that make a bucket's sum on all ranks, by topology.

Links that are busy alike are simulated as one: equal ranks in the same role have one pair of links together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from peerloom.kit.sync_method import DIRECT, DOUBLING, HIERARCHY, RING
from peerloom.kit.sync_model.access_links import AccessLink, SyncNetwork
from peerloom.kit.sync_model.scheme import SyncScheme
from peerloom.kit.sync_model.shared_ways import RoleLinks, TrunkLoads, directions_of
from peerloom.kit.sync_servers import server_ranks
from peerloom.kit.sync_sites import leaders_of

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


def topology_of(scheme: SyncScheme, network: SyncNetwork) -> SumTopology:
    """The scheme's topology over the network."""
    from peerloom.kit.sync_model.doubling_rounds import DoublingTopology
    from peerloom.kit.sync_model.site_rounds import SiteTopology

    if scheme.topology == RING:
        return RingTopology(network, scheme.message_bytes)
    if scheme.topology == DOUBLING:
        return DoublingTopology(network, scheme.message_bytes)
    if scheme.topology == HIERARCHY:
        leaders = leaders_of(scheme.sites, network.node_names)
        return SiteTopology(network, scheme.message_bytes, leaders)
    if scheme.topology == DIRECT:
        return OwnersTopology(network, scheme.message_bytes, range(network.ranks))
    owners = server_ranks(scheme.owners, scheme.server_nodes, network.node_names)
    return OwnersTopology(network, scheme.message_bytes, () if network.servers else owners)


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


@dataclass(frozen=True)
class _Role:
    """Ranks (or servers) that are alike: their link, and the parts that each moves in the first round."""

    link: AccessLink
    pushes: int  # to others
    collects: int  # from others


class OwnersTopology:
    """Each owner gets everybody's values for its part (push), and gives the sum to all (pull).

    The `owners` are ranks; without any, they are the network's servers. A worker moves 2 D bytes, or 2 D
    (owners - 1) / owners if it owns a part; an owner that isn't a worker 2 n D / owners. Links are queues:
    messages of other buckets follow while some are on their way.
    """

    def __init__(self, network: SyncNetwork, message_bytes: MessageBytes, owners: Sequence[int]) -> None:
        self._network = network
        self._message_bytes = message_bytes
        self._owner_ranks = tuple(owners)
        self._owners = len(owners or network.servers)
        self._push_s, self._pull_s = self._delays()
        firsts: dict[_Role, str] = {}
        for name, role in self._named_roles():
            firsts.setdefault(role, name)
        self._roles = tuple(firsts)
        self._role_links = RoleLinks(network, list(firsts.values()) if len(firsts) > 1 else [""])
        self.links = self._role_links.names
        ranks = range(network.ranks)
        self._pushed = TrunkLoads(network, ((rank, owner) for rank in ranks for owner in owners))
        self._pulled = TrunkLoads(network, ((owner, rank) for rank in ranks for owner in owners))

    def rounds(self, values: int) -> tuple[MessageRound, ...]:
        if self._network.ranks == 1:
            return ()
        part_bytes = self._message_bytes(-(-values // self._owners))
        push = [(role.pushes, role.collects) for role in self._roles]
        pull = [(collects, pushes) for pushes, collects in push]
        return (
            self._round("push", push, part_bytes, self._push_s, self._pushed),
            self._round("pull", pull, part_bytes, self._pull_s, self._pulled),
        )

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
        busy = trunks.busy(part_bytes, self._role_links.first_trunk) + self._role_links.busy(taken_s)
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

    def _named_roles(self) -> Iterator[tuple[str, _Role]]:
        network, owners, ranks = self._network, self._owners, set(self._owner_ranks)
        for rank, link in enumerate(network.links):
            is_owner = rank in ranks
            role = _Role(link, owners - 1, network.ranks - 1) if is_owner else _Role(link, owners, 0)
            yield f"rank {rank}", role
        for number, link in enumerate(() if self._owner_ranks else network.servers):
            yield f"server {number}", _Role(link, 0, network.ranks)
