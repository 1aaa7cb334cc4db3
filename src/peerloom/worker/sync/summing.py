"""How the buckets of all ranks become their sum: around a ring, or by way of owners with any codec.

With error feedback both sides of a direct exchange keep what their codec left out. The owner of a part adds
its own to its next gradients for that part, which go into the same sum (the two-sided feedback is that of
Tang et al., DoubleSqueeze, ICML 2019). So one residual a rank is enough, it fits any cut into parts, and the
sums that came out differ from those of all gradients by the sum of the residuals of now, however long ago
the first step was.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import torch
import torch.distributed as dist
from torch.nn.functional import pad

from peerloom.kit.codec_sizes import is_worth_encoding
from peerloom.kit.sync_method import CUT, SyncMethod
from peerloom.worker.sync import Collectives, SyncTraffic, TensorFuture
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.bucket_pieces import BucketOwners, BucketPiece
from peerloom.worker.sync.codecs import HALVES, Codec, codec_of
from peerloom.worker.sync.codecs.casting import wide
from peerloom.worker.sync.coming_sum import ComingSum, take_all
from peerloom.worker.sync.direct import DirectExchange, RowExchange
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
        self._traffic.bytes += sent.nbytes
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
        values, left_out = wide(gradients), None
        if self._method.has_feedback:
            values = values + self._residuals.of(layout)
            left_out = torch.empty_like(values)
        method = method_for(self._method, layout, gradients.element_size())
        bucket = _Bucket(gradients, layout, method, left_out)
        for piece in self._owners.pieces(len(values), gradients.element_size()):
            bucket.pieces.append(self._begin_piece(bucket, values, piece))
        done = [piece.exchange.done for piece in bucket.pieces]
        self._under_way.append(coming := ComingSum(layout, done, partial(self._put, bucket)))
        return coming

    def finish(self) -> float:
        take_all(self._under_way)
        assert self._losses is not None, "a step begins with its loss"
        return float(self._exchange.rows(self._losses).sum())

    def _begin_piece(self, bucket: "_Bucket", values: torch.Tensor, cut: BucketPiece) -> "_Piece":
        start, end, owners = cut.start, cut.end, cut.owners
        parts = pad(values[start:end], (0, -(end - start) % len(owners))).view(len(owners), -1)
        length = parts.shape[1]
        codec = codec_of(bucket.method, length, bucket.gradients.dtype)
        encoded, rank = codec.encode(parts), self._exchange.rank
        own = owners.index(rank) if rank in owners else None
        own_values = parts[own].cpu() if own is not None else None
        if bucket.left_out is not None:
            left_out = parts - codec.decode(encoded, length)
            if own is not None:
                left_out[own] = 0.0
            bucket.left_out[start:end] = left_out.flatten()[: end - start]
        own_part: list[torch.Tensor] = []

        def summed(rows: torch.Tensor) -> torch.Tensor:
            assert own_values is not None, "only owners sum up"
            came = codec.decode(rows, length)
            came[rank] = own_values  # which don't travel, so nothing of them is left out
            total = came.sum(0, keepdim=True)
            result = codec.encode(total)
            if bucket.left_out is not None:
                own_part.append((total - codec.decode(result, length))[0])
            return result[0]

        # The backward pass ends with the first layers, and the next forward pass begins with them.
        urgency = len(self._under_way) if self._method.schedule == CUT else 0
        exchange = self._exchange.begin_by_owners(encoded, owners, summed, urgency)
        own_start = start + own * length if own is not None else end
        return _Piece(start, end, length, codec, exchange, own_start, own_part)

    def _put(self, bucket: "_Bucket") -> None:
        for piece in bucket.pieces:
            self._put_piece(bucket, piece)
        if bucket.left_out is not None:
            self._residuals.set_aside(bucket.layout, bucket.left_out)

    def _put_piece(self, bucket: "_Bucket", piece: "_Piece") -> None:
        came = piece.codec.decode(self._exchange.rows(piece.exchange), piece.length)
        bucket.gradients[piece.start : piece.end] = came.flatten()[: piece.end - piece.start]
        if bucket.left_out is not None and piece.own_left_out:
            own = bucket.left_out[piece.own_start : min(piece.end, piece.own_start + piece.length)]
            own += piece.own_left_out[0][: len(own)].to(own.device)


@dataclass(frozen=True, eq=False)
class _Piece:
    """The values from `start` to `end` of a bucket, in parts of `length` that have an owner each."""

    start: int
    end: int
    length: int
    codec: Codec
    exchange: RowExchange
    own_start: int
    own_left_out: list[torch.Tensor]  # what encoding the sum of the own part left out, once that is done


@dataclass(frozen=True, eq=False)
class _Bucket:
    gradients: torch.Tensor
    layout: Layout
    method: SyncMethod  # that decides the codec
    left_out: torch.Tensor | None
    pieces: list[_Piece] = field(default_factory=list)
