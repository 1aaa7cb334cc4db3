"""Recursive doubling (`kit.doubling_partners`): log2(n) swaps of whole messages, each with one other rank.

Both of a pair add the same two sums, each as it was encoded, in the same order. So after each round all who
have swapped have the same bits, and nobody has to be given a sum but who is left over.
"""

from dataclasses import dataclass
from functools import partial

import torch

from peerloom.kit.doubling_partners import doubling_place, round_count
from peerloom.kit.sync_method import CUT, SyncMethod
from peerloom.worker.mesh.frames import Tag
from peerloom.worker.sync import Collectives, SyncTraffic, TensorFuture
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.bucket_pieces import piece_bounds
from peerloom.worker.sync.codecs import Codec, codec_of
from peerloom.worker.sync.codecs.casting import Casting, wide
from peerloom.worker.sync.coming_sum import ComingSum, take_all
from peerloom.worker.sync.summing import method_for


class DoublingSumming:
    """Sums by recursive doubling, the losses' too; with a codec that keeps nothing back."""

    def __init__(self, collectives: Collectives, traffic: SyncTraffic, method: SyncMethod) -> None:
        self._collectives = collectives
        self._traffic = traffic
        self._method = method
        self._loss: DoublingSum | None = None
        self._under_way: list[ComingSum] = []

    def begin_loss(self, own: torch.Tensor) -> None:
        self._loss = self._begin(own.reshape(1), Casting(own.dtype), 0)

    def begin(self, gradients: torch.Tensor, layout: Layout) -> ComingSum:
        method = method_for(self._method, layout, gradients.element_size())
        is_cut = self._method.schedule == CUT
        urgency = len(self._under_way) if is_cut else 0  # as an owner's: the first layers come last
        pieces: list[_Piece] = []
        for start, end in piece_bounds(self._method, len(gradients), gradients.element_size()):
            codec, target = codec_of(method, end - start, gradients.dtype), gradients[start:end]
            pieces.append(_Piece(target, self._begin(target, codec, urgency)))

        def put() -> None:
            for piece in pieces:
                self._collectives.result(piece.sum.done)
                piece.target.copy_(piece.sum.total())

        self._under_way.append(coming := ComingSum(layout, [piece.sum.done for piece in pieces], put))
        return coming

    def finish(self) -> float:
        take_all(self._under_way)
        assert self._loss is not None, "a step begins with its loss"
        self._collectives.result(self._loss.done)
        return float(self._loss.total())

    def _begin(self, own: torch.Tensor, codec: Codec, urgency: int) -> "DoublingSum":
        begun = DoublingSum(self._collectives, wide(own.cpu()), codec, urgency)
        self._traffic.bytes += begun.sent_bytes
        return begun


class DoublingSum:
    """One exchange: this rank's values [d], on the processor, and what becomes of them.

    Phase 0 brings the values of who is left over, each following one is a round, and the last brings them the
    sum. Whoever waits for `done` may ask for the `total` then.
    """

    def __init__(self, collectives: Collectives, own: torch.Tensor, codec: Codec, urgency: int) -> None:
        mesh, ranks = collectives.mesh, collectives.world_size
        assert mesh is not None, "the group was formed with a mesh"
        self._mesh, self._codec, self._urgency = mesh, codec, urgency
        self._place = place = doubling_place(collectives.rank, ranks)
        self._last_phase = round_count(ranks) + 1
        self._value = own[None]
        self._encoded = encoded = codec.encode(self._value)
        self._came = {phase: torch.empty_like(encoded) for phase in self._senders()}
        self._sequence = mesh.next_sequence()
        self.sent_bytes = encoded.nbytes * max(1, len(place.rounds) + (place.takes_from is not None))
        outgoing, thens = {}, [partial(self._go_on, done) for done in range(self._last_phase)]
        if place.gives_to is not None:
            outgoing, thens = {place.gives_to: encoded}, []
        incoming = {phase: {peer: self._came[phase]} for phase, peer in self._senders().items()}
        self.done: TensorFuture = mesh.begin(self._sequence, outgoing, incoming, thens, urgency)

    def total(self) -> torch.Tensor:
        """The sum [d], the same bits on all ranks."""
        if self._place.gives_to is not None:
            self._value = self._decoded(self._came[self._last_phase])
        return self._value[0]

    def _senders(self) -> dict[int, int]:
        """By phase who sends to this rank in it."""
        place = self._place
        if place.gives_to is not None:
            return {self._last_phase: place.gives_to}
        found = {number: one.partner for number, one in enumerate(place.rounds, 1)}
        return found if place.takes_from is None else {0: place.takes_from, **found}

    def _go_on(self, done: int) -> None:
        """All until the phase `done` has come: adds what that brought, and sends what the next one needs."""
        rounds = self._place.rounds
        if done == 0 and self._place.takes_from is not None:
            self._value = self._value + self._decoded(self._came[0])
        elif done > 0:
            sums = self._decoded(self._encoded), self._decoded(self._came[done])
            lower, upper = sums if rounds[done - 1].is_lower else reversed(sums)
            self._value = lower + upper
        self._encoded = self._codec.encode(self._value)
        if done < len(rounds):
            self._send(done + 1, rounds[done].partner)
            return
        self._value = self._decoded(self._encoded)  # as those have it who are given it
        if self._place.takes_from is not None:
            self._send(self._last_phase, self._place.takes_from)

    def _send(self, phase: int, rank: int) -> None:
        self._mesh.send(Tag(self._sequence, phase), {rank: self._encoded}, self._urgency)

    def _decoded(self, encoded: torch.Tensor) -> torch.Tensor:
        return self._codec.decode(encoded, self._value.shape[1])


@dataclass(frozen=True, eq=False)
class _Piece:
    target: torch.Tensor
    sum: DoublingSum
