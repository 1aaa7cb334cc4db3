"""The way between each two ranks of a generation, measured on the mesh's own connections.

Two ranks at a time: the lower one sends, the higher one answers at once. A message of l bytes takes a + b * l
(Hockney, 1994), so short ones tell a, and longer ones, grown until they take some time, tell b. Then many
short ones go at once, there and back: what each adds is the processors' work. Messages of the training
overtake. In each round of a tournament every rank has another partner, so no link is shared.
"""

import math
import struct
import threading
import time
from collections.abc import Callable

import torch

from peerloom.kit.tournament import measured_partners
from peerloom.v1.trainer_pb2 import MeasuredLink
from peerloom.worker.group.waits import TensorFuture
from peerloom.worker.measuring.trips import BEHIND, LONGEST_WAIT_S, await_all, begin_answering, begin_asking
from peerloom.worker.mesh.frames import Tag
from peerloom.worker.mesh.mesh import Mesh

# Numbers that no exchange of the training reaches.
FIRST_SEQUENCE, FIRST_OF_BURSTS = 1 << 62, (1 << 62) + (1 << 40)
MOST_TRIPS, BURSTS, BURST = 64, 2, 32
_SIZES = struct.Struct("!II")  # of the next trip's messages, there and back; zeros: it is over
SHORT_BYTES, LEAST_BYTES, MOST_BYTES = _SIZES.size, 1 << 14, 1 << 20
GROWTH = 4
LONG_ENOUGH_S = 0.03  # beside the delay: a rate is known well enough
LEAST_TRIP_S = 1e-6  # no clock and no network is faster
PAIR_S = 0.15  # after which a pair doesn't go on to longer messages
ROUNDS_S = 0.5  # for that, of all pairs that a rank is in


class LinkProbe:
    """The probes of `rank` among the `ranks` of a generation; `now_s` is a monotonic clock."""

    def __init__(
        self, mesh: Mesh, rank: int, ranks: int, now_s: Callable[[], float] = time.perf_counter
    ) -> None:
        self._mesh, self._rank, self._ranks, self._now_s = mesh, rank, ranks, now_s

    def run(self) -> list[MeasuredLink]:
        """The ways to all higher ranks that it met; blocks. Raises RuntimeError when a peer is lost."""
        found = []
        met = measured_partners(self._rank, self._ranks)
        pair_s = min(PAIR_S, ROUNDS_S / max(1, len(met)))
        for peer in met:
            if peer is None:
                continue
            low, high = sorted((self._rank, peer))
            pair = low * self._ranks + high
            first, bursts = FIRST_SEQUENCE + pair * MOST_TRIPS, FIRST_OF_BURSTS + pair * BURSTS * BURST
            if self._rank < peer:
                link = _Asking(self._mesh, peer, first, pair_s, self._now_s).measure()
                burst_s = min(self._burst_s(peer, bursts + number * BURST) for number in range(BURSTS))
                link.message_s = max(0.0, burst_s - 2 * link.delay_s) / BURST
                found.append(link)
            else:
                _Answering(self._mesh, peer, first).serve()
                for number in range(BURSTS):
                    self._burst_s(peer, bursts + number * BURST)
        return found

    def _burst_s(self, peer: int, first: int) -> float:
        """Seconds until many short messages have gone there, and as many back: the higher rank answers."""
        begin = begin_asking if self._rank < peer else begin_answering
        begun_s = self._now_s()
        numbers = range(first, first + BURST)
        burst = [begin(self._mesh, peer, number, SHORT_BYTES, SHORT_BYTES) for number in numbers]
        await_all(burst, f"rank {peer} didn't answer")
        return self._now_s() - begun_s


class _Asking:
    """The lower rank of a pair, which has the clock."""

    def __init__(self, mesh: Mesh, peer: int, first: int, pair_s: float, now_s: Callable[[], float]) -> None:
        self._mesh, self._peer, self._next, self._now_s = mesh, peer, first, now_s
        self._pair_s = pair_s
        self._round_trip_s = math.inf

    def measure(self) -> MeasuredLink:
        """Each direction's rate, and half of the shortest round trip."""
        self._announced((SHORT_BYTES, SHORT_BYTES))  # until the other one is there
        self._round_trip_s = math.inf
        sent, received = self._rate(0), self._rate(1)
        self._announced((0, 0))
        return MeasuredLink(
            rank=self._peer,
            delay_s=self._round_trip_s / 2,
            sent_bits_per_s=sent,
            received_bits_per_s=received,
        )

    def _rate(self, back: int) -> float:
        """The best of trips that grow, there or `back` (1)."""
        size, best, begun_s = LEAST_BYTES, 0.0, self._now_s()
        while True:
            took_s = self._announced((SHORT_BYTES, size) if back else (size, SHORT_BYTES))
            net_s = max(took_s - self._round_trip_s, took_s / 10)
            best = max(best, 8 * size / net_s)
            is_late = self._now_s() - begun_s > self._pair_s
            if net_s >= LONG_ENOUGH_S or size >= MOST_BYTES or is_late:
                return best
            size *= GROWTH

    def _announced(self, sizes: tuple[int, int]) -> float:
        """Seconds of a trip with messages of these sizes, there and back; zeros are announced alone.

        It leaves right behind the short message that announces it, whose own trip is one of the shortest.
        """
        begun_s = self._now_s()
        announcement = self._begin(begun_s, SHORT_BYTES, SHORT_BYTES, sizes)
        trip = self._begin(begun_s, *sizes) if any(sizes) else announcement
        self._round_trip_s = min(self._round_trip_s, announcement.took_s())
        return trip.took_s()

    def _begin(self, begun_s: float, there: int, back: int, announced: tuple[int, int] = (0, 0)) -> "_Trip":
        ping = torch.zeros(there, dtype=torch.uint8)
        ping[:SHORT_BYTES] = torch.frombuffer(bytearray(_SIZES.pack(*announced)), dtype=torch.uint8)
        pong = torch.empty(back, dtype=torch.uint8)
        done = self._mesh.begin(self._next, {self._peer: ping}, {1: {self._peer: pong}}, urgency=BEHIND)
        self._next += 1
        return _Trip(self._peer, done, begun_s, self._now_s)


class _Trip:
    """A message to `peer` that is on its way since `begun_s`, and the answer."""

    def __init__(self, peer: int, done: TensorFuture, begun_s: float, now_s: Callable[[], float]) -> None:
        self._peer, self._done = peer, done
        self._took_s = 0.0
        self._is_over = threading.Event()

        def end(_: object) -> None:
            self._took_s = max(now_s() - begun_s, LEAST_TRIP_S)
            self._is_over.set()

        done.add_done_callback(end)

    def took_s(self) -> float:
        """Seconds until the last byte came; blocks. Raises RuntimeError when the peer is lost."""
        if not self._is_over.wait(LONGEST_WAIT_S):
            raise RuntimeError(f"rank {self._peer} didn't answer")
        if isinstance(failure := self._done.value(), str):
            raise RuntimeError(failure)
        return self._took_s


class _Answering:
    """The higher rank of a pair. Every other trip is short, and says how long the next one is."""

    def __init__(self, mesh: Mesh, peer: int, first: int) -> None:
        self._mesh, self._peer, self._first = mesh, peer, first
        self._over = threading.Event()
        self._failure = ""

    def serve(self) -> None:
        """Answers until the other one says that it has enough. Raises RuntimeError when it is lost."""
        self._await(0, SHORT_BYTES, SHORT_BYTES)
        if not self._over.wait(LONGEST_WAIT_S):
            raise RuntimeError(f"rank {self._peer} didn't go on")
        if self._failure:
            raise RuntimeError(self._failure)

    def _await(self, number: int, there: int, back: int) -> None:
        ping = torch.empty(there, dtype=torch.uint8)
        pong = torch.zeros(back, dtype=torch.uint8)
        sequence = self._first + number
        is_last: list[bool] = []

        def answer() -> None:
            following = (SHORT_BYTES, SHORT_BYTES) if number % 2 else _announced(ping)
            if any(following) and number + 1 < MOST_TRIPS:
                self._await(number + 1, *following)
            else:
                is_last.append(True)
            self._mesh.send(Tag(sequence, 1), {self._peer: pong}, BEHIND)

        def end(result: object) -> None:
            if isinstance(result, str):
                self._failure = result
                self._over.set()
            elif is_last:
                self._over.set()

        done = self._mesh.begin(sequence, {}, {0: {self._peer: ping}}, [answer], BEHIND)
        done.add_done_callback(lambda future: end(future.value()))


def _announced(ping: torch.Tensor) -> tuple[int, int]:
    there, back = _SIZES.unpack(bytes(ping[:SHORT_BYTES].tolist()))
    if not (there, back) == (0, 0) and not SHORT_BYTES <= min(there, back) <= max(there, back) <= MOST_BYTES:
        raise ValueError(f"messages of {there} and {back} bytes are announced, and {MOST_BYTES} are the most")
    return there, back
