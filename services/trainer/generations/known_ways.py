"""The ways between a job's nodes, as workers measured them last: other generations of them need no new ones.

Measuring holds all workers up, over long ways for seconds. A change of method changes no way, and nor does a
worker in the place of one that was killed.
"""

from collections.abc import Sequence

from peerloom.kit.tournament import measured_partners
from peerloom.v1.trainer_pb2 import MeasuredLink, WorkerMeasured

LASTING_S = 180.0  # a way may become worse: it is measured again in the next generation after that


class KnownWays:
    """The newest measurement between each two nodes; times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._ways: dict[tuple[str, str], tuple[float, MeasuredLink]] = {}  # from the one to the other
        self._together: dict[str, float] = {}  # bits/s that came to a node while all asked all

    def note(self, nodes: Sequence[str], rank: int, measured: WorkerMeasured, now_s: float) -> None:
        """The worker of this rank has told of its ways; `nodes` has each rank's node."""
        self._together[nodes[rank]] = measured.together_bits_per_s
        for link in measured.links:
            if link.rank < len(nodes) and link.rank != rank:
                self._ways[nodes[rank], nodes[link.rank]] = now_s, link
                self._ways[nodes[link.rank], nodes[rank]] = now_s, _turned(link)

    def cover(self, nodes: Sequence[str], now_s: float) -> bool:
        """Whether all that ranks on these nodes would measure is known, and not for too long."""
        return all(
            self._ways.get((nodes[one], nodes[other]), (-LASTING_S, None))[0] > now_s - LASTING_S
            for one, other in _measured_pairs(len(nodes))
        )

    def filled(self, by_rank: Sequence[WorkerMeasured], nodes: Sequence[str]) -> list[WorkerMeasured]:
        """What was told by rank, with what is known besides: ways to be measured, and what came together."""
        whole = [WorkerMeasured() for _ in by_rank]
        for filled, each, node in zip(whole, by_rank, nodes, strict=True):
            filled.CopyFrom(each)
            filled.together_bits_per_s = each.together_bits_per_s or self._together.get(node, 0.0)
        told = {tuple(sorted((rank, link.rank))) for rank, each in enumerate(by_rank) for link in each.links}
        for one, other in sorted(_measured_pairs(len(by_rank)) - told):
            if (known := self._ways.get((nodes[one], nodes[other]))) is not None:
                whole[one].links.add().CopyFrom(known[1])
                whole[one].links[-1].rank = other
        return whole


def _measured_pairs(ranks: int) -> set[tuple[int, ...]]:
    """Each two ranks that measure their way, the lower one first."""
    return {
        (rank, peer)
        for rank in range(ranks)
        for peer in measured_partners(rank, ranks)
        if peer is not None and rank < peer
    }


def _turned(link: MeasuredLink) -> MeasuredLink:
    """The same way, as the other rank sees it."""
    return MeasuredLink(
        rank=link.rank,
        delay_s=link.delay_s,
        sent_bits_per_s=link.received_bits_per_s,
        received_bits_per_s=link.sent_bits_per_s,
        message_s=link.message_s,
    )
