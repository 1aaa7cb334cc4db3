"""How fast each connection may send where ranks send to several others at once: pure functions.

TCP's connections share a link unevenly, by what each gets through, and fill its queue until packets are late
or lost. All wait for the last one. Where none sends more than its even part nothing queues.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from peerloom.kit.sync_method import DIRECT, SERVERS, SyncMethod
from peerloom.kit.sync_servers import server_ranks

MARGIN = 1.05  # what is measured is some per cent too low, and a link that isn't full is lost time
# What the processors allow isn't known well, and faster links wait for these rather than for each other.
FASTEST_PACED_BITS_PER_S = 2e8


@dataclass(frozen=True)
class LinkRates:
    """What a rank's link sends and brings, in bits/s of content; 0: not known."""

    up_bits_per_s: float = 0.0
    down_bits_per_s: float = 0.0

    @property
    def is_known(self) -> bool:
        """Whether both are."""
        return self.up_bits_per_s > 0 and self.down_bits_per_s > 0


def shares_links(method: SyncMethod) -> bool:
    """Whether each rank exchanges with several others at once, all after the same steps, not in groups."""
    goes_alone = method.federated is not None or method.stale is not None
    return method.topology in (DIRECT, SERVERS) and method.groups is None and not goes_alone


def paces(
    method: SyncMethod, node_ids: Sequence[str], links: Sequence[LinkRates], margin: float = MARGIN
) -> Mapping[tuple[int, int], int]:
    """The most bytes/s from one rank to another, of those that have to keep to it, by both.

    `node_ids` and `links` are by rank. An even part of what the sender's link sends, or of what the
    receiver's brings, whichever is less, times `margin`. Empty where a rank's link isn't known.
    """
    if not shares_links(method) or not all(link.is_known for link in links):
        return {}
    servers = server_ranks(method.servers, method.server_nodes, node_ids)
    ways = [
        (sender, taker)
        for sender in range(len(node_ids))
        for taker in range(len(node_ids))
        if node_ids[sender] != node_ids[taker] and (sender in servers or taker in servers)
    ]
    # Ranks of a node share its link.
    sent = Counter(node_ids[sender] for sender, _ in ways)
    got = Counter(node_ids[taker] for _, taker in ways)
    found = {}
    for sender, taker in ways:
        rate, ranks = min(
            (links[sender].up_bits_per_s, sent[node_ids[sender]]),
            (links[taker].down_bits_per_s, got[node_ids[taker]]),
            key=lambda one: one[0] / one[1],
        )
        if ranks > 1 and rate <= FASTEST_PACED_BITS_PER_S:
            found[sender, taker] = max(1, int(margin * rate / ranks / 8))
    return found
