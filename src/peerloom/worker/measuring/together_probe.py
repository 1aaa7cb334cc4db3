"""What a rank's link brings while all ranks ask all others at once, as exchanges over the mesh do.

Over a long way one connection is slower than its link: it hasn't found its rate yet, or is paced by what it
brought before. Several at once bring more, and an exchange uses that many. All answer as soon as they are
asked, so each rank measures by its own clock.
"""

import struct
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import product

from peerloom.v1.trainer_pb2 import MeasuredLink
from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.measuring.link_probe import SHORT_BYTES
from peerloom.worker.measuring.trips import (
    LONGEST_WAIT_S,
    await_all,
    begin_answering,
    begin_asking,
    told_by_all,
)
from peerloom.worker.mesh.mesh import Mesh

# Numbers that no exchange of the training reaches, and no probe of a pair.
FIRST_TOGETHER = (1 << 62) + (1 << 41)
FEWEST_RANKS, MOST_RANKS = 3, 32  # two have one connection, and so many ask enough of each other
TIMES = 3  # connections find their rate meanwhile: the best counts
LEAST_S = 0.05  # that the answers take by what is known, or a round trip where that is longer
LONG_S = 0.15  # where milliseconds of the processors' would count
FASTEST_BITS_PER_S = 1e12  # what is believed of any link
LEAST_BYTES, MOST_BYTES = 1 << 10, 1 << 18  # of an answer, the most in LEAST_S
_MISSING = "a rank didn't answer"
# The best rate that a rank knows, its longest way, and its way to this other rank; 0: it knows none.
_KNOWN = struct.Struct("!ddd")


class TogetherProbe:
    """The probe of `rank` among the `ranks` of a generation, which knows these `links`.

    `now_s` is a monotonic clock; `least_s`, alike on all ranks, how long answers should take.
    """

    def __init__(
        self,
        mesh: Mesh,
        rank: int,
        ranks: int,
        links: Sequence[MeasuredLink],
        now_s: Callable[[], float] = time.perf_counter,
        least_s: float = LEAST_S,
    ) -> None:
        self._least_s = least_s
        self._mesh, self._rank, self._ranks, self._now_s = mesh, rank, ranks, now_s
        self._links = {link.rank: link for link in links}
        self._peers = [peer for peer in range(ranks) if peer != rank]

    def run(self) -> float:
        """The bits/s that came, 0.0 where as many ranks don't ask; blocks.

        Raises RuntimeError when a peer is lost.
        """
        if not FEWEST_RANKS <= self._ranks <= MOST_RANKS:
            return 0.0
        own = (
            max(
                (max(link.sent_bits_per_s, link.received_bits_per_s) for link in self._links.values()),
                default=0.0,
            ),
            max((link.delay_s for link in self._links.values()), default=0.0),
        )
        told = self._told(own)
        best, longest_s = zip(own, *(known[:2] for known in told.values()), strict=True)
        # Of many ranks not all have met.
        ways_s = [link.delay_s for link in self._links.values()] + [known[2] for known in told.values()]
        answer_bytes = answer_size(best, max(longest_s), self._ranks, self._least_s)
        answering = [self._begin_answering(*one, answer_bytes) for one in product(range(TIMES), self._peers)]
        took_s = min(self._asked(turn, answer_bytes) for turn in range(TIMES))
        await_all(answering, _MISSING)
        nearest_s = min((way_s for way_s in ways_s if way_s > 0), default=0.0)
        return rate_together(answer_bytes * len(self._peers), took_s, 2 * nearest_s)

    def _told(self, own: tuple[float, float]) -> dict[int, tuple[float, ...]]:
        """What each other rank knows. Who has heard of all begins, so they begin together."""
        ways_s = {peer: self._links[peer].delay_s if peer in self._links else 0.0 for peer in self._peers}
        told = {peer: _KNOWN.pack(*own, way_s) for peer, way_s in ways_s.items()}
        came = told_by_all(self._mesh, FIRST_TOGETHER, told, _MISSING)
        return {peer: _KNOWN.unpack(one) for peer, one in came.items()}

    def _asked(self, turn: int, answer_bytes: int) -> float:
        """Seconds until all have answered with so many bytes."""
        begun_s = self._now_s()
        await_all([self._begin_asking(turn, peer, answer_bytes) for peer in self._peers], _MISSING)
        return self._now_s() - begun_s

    def _begin_asking(self, turn: int, peer: int, answer_bytes: int) -> TensorFuture:
        number = self._number(turn, self._rank, peer)
        return begin_asking(self._mesh, peer, number, SHORT_BYTES, answer_bytes)

    def _begin_answering(self, turn: int, peer: int, answer_bytes: int) -> TensorFuture:
        number = self._number(turn, peer, self._rank)
        return begin_answering(self._mesh, peer, number, SHORT_BYTES, answer_bytes)

    def _number(self, turn: int, asking: int, answering: int) -> int:
        return FIRST_TOGETHER + 1 + (turn * self._ranks + asking) * self._ranks + answering


def answer_size(
    best_bits_per_s: Iterable[float], longest_s: float, ranks: int, least_s: float = LEAST_S
) -> int:
    """Bytes of one answer: so many take `least_s` by the slowest rank's best rate, or a round trip.

    `longest_s` is the longest known way; who knows no rate (0) doesn't count. Alike on all ranks.
    """
    rate = min((one for one in best_bits_per_s if one > 0), default=0.0)
    trip_s = 2 * longest_s if 0 <= longest_s <= LONGEST_WAIT_S else 0.0  # another worker said so
    wanted = rate * max(least_s, trip_s) / 8 / (ranks - 1)
    return int(min(max(wanted, LEAST_BYTES), MOST_BYTES * least_s / LEAST_S))


def rate_together(came_bytes: int, took_s: float, trip_s: float) -> float:
    """The bits/s of answers that took so long, asking included, where the shortest round trip is `trip_s`.

    Of a much shorter time than a round trip no clock tells, and no link is believed to be faster than
    FASTEST_BITS_PER_S.
    """
    left_s = max(took_s - trip_s, took_s / 10)
    return min(8 * came_bytes / left_s, FASTEST_BITS_PER_S) if left_s > 0 else FASTEST_BITS_PER_S
