"""How the buckets of all ranks become their sum: around a ring, or by way of owners with any codec.

With error feedback both sides of a direct exchange keep what their codec left out. The owner of a part adds
its own to its next gradients for that part, which go into the same sum (the two-sided feedback is that of
Tang et al., DoubleSqueeze, ICML 2019). So one residual a rank is enough, it fits any cut into parts, and the
sums that came out differ from those of all gradients by the sum of the residuals of now, however long ago
the first step was.
"""

from typing import Protocol

import torch
import torch.distributed as dist

from peerloom.kit.codec_sizes import is_worth_encoding
from peerloom.kit.sync_method import CUT, SyncMethod
from peerloom.worker.sync import Collectives, SyncTraffic, TensorFuture
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.bucket_pieces import BucketOwners
from peerloom.worker.sync.codecs import HALVES
from peerloom.worker.sync.codecs.casting import wide
from peerloom.worker.sync.coming_sum import ComingSum, take_all
from peerloom.worker.sync.direct import DirectExchange, RowExchange
from peerloom.worker.sync.owned_sum import OwnedSum
from peerloom.worker.sync.residuals import Residuals


def method_for(method: SyncMethod, layout: Layout, value_bytes: int) -> SyncMethod:
    """What encodes a bucket whose parameters are all of one side of `codec_from`."""
    is_small = any(size.numel() * value_bytes < method.codec_from for _, size, _, _ in layout.places)
    return method.without_codec() if is_small else method


class Summing(Protocol):
    """Sums over the ranks: `begin_loss`, `begin` for each bucket in the same order on all, and `finish`."""

    def begin_loss(self, own: torch.Tensor) -> None:
        """A step begins: this rank's part of its loss, a number."""

    def begin(self, gradients: torch.Tensor, layout: Layout) -> ComingSum:
        """A bucket's gradients are complete."""

    def finish(self) -> float:
        """Leaves the sums in the buckets, those that weren't taken before, and returns that of the losses.

        More buckets may follow in the same step, and then `finish` again. Raises what `Collectives.result`
        does.
        """


class RingSumming:
    """The library's all-reduce, in half precision where the method says so."""

    def __init__(self, collectives: Collectives, traffic: SyncTraffic, method: SyncMethod) -> None:
        self._collectives = collectives
        self._traffic = traffic
        self._method = method
        self._loss: TensorFuture | None = None
        self._under_way: list[ComingSum] = []

    def begin_loss(self, own: torch.Tensor) -> None:
        self._loss = self._begin(own)

    def begin(self, gradients: torch.Tensor, layout: Layout) -> ComingSum:
        in_part = gradients.numel() // self._collectives.world_size
        method = method_for(self._method, layout, gradients.element_size())
        is_shorter = is_worth_encoding(method, in_part, gradients.element_size())
        sent = gradients.to(HALVES[method.codec]) if is_shorter else gradients
        done = self._begin(sent)

        def put() -> None:
            self._collectives.result(done)
            if sent is not gradients:
                gradients.copy_(sent)

        self._under_way.append(coming := ComingSum(layout, [done], put))
        return coming

    def finish(self) -> float:
        take_all(self._under_way)
        assert self._loss is not None, "a step begins with its loss"
        return float(self._collectives.result(self._loss))

    def _begin(self, sent: torch.Tensor) -> TensorFuture:
        self._traffic.add_all_reduce(sent.nbytes, self._collectives.world_size)
        return self._collectives.follow(dist.all_reduce(sent, async_op=True))


class OwnerSumming:
    """The owner of a part adds up all values of it, in single precision or better; all decode its result.

    Who owns what, ranks or servers, is the method's topology (`bucket_pieces`).
    """

    def __init__(self, exchange: DirectExchange, method: SyncMethod, residuals: Residuals) -> None:
        self._exchange = exchange
        self._method = method
        self._residuals = residuals
        self._owners = BucketOwners(method, exchange.nodes)
        self._losses: RowExchange | None = None
        self._under_way: list[ComingSum] = []

    def begin_loss(self, own: torch.Tensor) -> None:
        self._losses = self._exchange.begin_to_all(own)
        self._owners.begin_step()

    def begin(self, gradients: torch.Tensor, layout: Layout) -> ComingSum:
        values, keeps = wide(gradients), self._method.has_feedback
        if keeps:
            values = values + self._residuals.of(layout)
        method = method_for(self._method, layout, gradients.element_size())
        # The backward pass ends with the first layers, and the next forward pass begins with them.
        urgency = len(self._under_way) if self._method.schedule == CUT else 0
        pieces = self._owners.pieces(len(values), gradients.element_size())
        sums = [
            OwnedSum(
                self._exchange,
                method,
                gradients.dtype,
                values[piece.start : piece.end],
                piece.owners,
                keeps=keeps,
                urgency=urgency,
            )
            for piece in pieces
        ]

        def put() -> None:
            for piece, one in zip(pieces, sums, strict=True):
                gradients[piece.start : piece.end] = one.total()
            if keeps:
                self._residuals.set_aside(layout, torch.cat([one.left_out() for one in sums]))

        self._under_way.append(coming := ComingSum(layout, [one.done for one in sums], put))
        return coming

    def finish(self) -> float:
        take_all(self._under_way)
        assert self._losses is not None, "a step begins with its loss"
        return float(self._exchange.rows(self._losses).sum())
