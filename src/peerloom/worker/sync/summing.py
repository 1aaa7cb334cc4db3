"""How the buckets of all ranks become their sum: around a ring, or by a direct exchange with any codec.

With error feedback both sides of a direct exchange keep what their codec left out. The owner of a part adds
its own to its next gradients for that part, which go into the same sum (the two-sided feedback is that of
Tang et al., DoubleSqueeze, ICML 2019). So one residual a rank is enough, it fits any cut into parts, and the
sums that came out differ from those of all gradients by the sum of the residuals of now, however long ago
the first step was.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch.nn.functional import pad

from peerloom.kit.codec_sizes import is_worth_encoding
from peerloom.kit.sync_method import SyncMethod
from peerloom.worker.sync import Collectives, SyncTraffic, TensorFuture
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.codecs import HALVES, Codec, codec_of
from peerloom.worker.sync.codecs.casting import wide
from peerloom.worker.sync.direct import DirectExchange, RowExchange
from peerloom.worker.sync.residuals import Residuals


class Summing(Protocol):
    """Sums buckets over the ranks: `begin` for each, in the same order on all, then `finish` once a step."""

    def begin(self, gradients: torch.Tensor, layout: Layout) -> None:
        """A bucket's gradients are complete."""

    def finish(self) -> None:
        """Leaves the sums in the buckets. Raises what `Collectives.result` does."""


class RingSumming:
    """The library's all-reduce, in half precision where the method says so."""

    def __init__(self, collectives: Collectives, traffic: SyncTraffic, method: SyncMethod) -> None:
        self._collectives = collectives
        self._traffic = traffic
        self._method = method
        self._under_way: list[tuple[torch.Tensor, torch.Tensor, TensorFuture]] = []

    def begin(self, gradients: torch.Tensor, layout: Layout) -> None:
        in_part = gradients.numel() // self._collectives.world_size
        is_shorter = is_worth_encoding(self._method, in_part, gradients.element_size())
        sent = gradients.to(HALVES[self._method.codec]) if is_shorter else gradients
        self._traffic.bytes += sent.numel() * sent.element_size()
        done = self._collectives.follow(dist.all_reduce(sent, async_op=True))
        self._under_way.append((gradients, sent, done))

    def finish(self) -> None:
        for gradients, sent, done in self._under_way:
            self._collectives.result(done)
            if sent is not gradients:
                gradients.copy_(sent)
        self._under_way.clear()


@dataclass(frozen=True, eq=False)
class _Parts:
    gradients: torch.Tensor
    layout: Layout
    codec: Codec
    left_out: torch.Tensor | None  # [ranks, length of a part]
    length: int
    exchange: RowExchange


class DirectSumming:
    """The owner of a part adds up all values of it, in single precision or better; all decode its result."""

    def __init__(self, exchange: DirectExchange, method: SyncMethod, residuals: Residuals) -> None:
        self._exchange = exchange
        self._method = method
        self._residuals = residuals
        self._under_way: list[_Parts] = []

    def begin(self, gradients: torch.Tensor, layout: Layout) -> None:
        values = wide(gradients)
        if self._method.has_feedback:
            values = values + self._residuals.of(layout)
        ranks = self._exchange.ranks
        parts = pad(values, (0, -values.numel() % ranks)).view(ranks, -1)
        length = parts.shape[1]
        codec = codec_of(self._method, length, gradients.dtype)
        encoded = codec.encode(parts)
        left_out = parts - codec.decode(encoded, length) if self._method.has_feedback else None
        exchange = self._exchange.begin(encoded.flatten())
        self._under_way.append(_Parts(gradients, layout, codec, left_out, length, exchange))

    def finish(self) -> None:
        arriving = [self._give(parts) for parts in self._under_way]
        for parts, exchange in zip(self._under_way, arriving, strict=True):
            came = parts.codec.decode(self._exchange.rows(exchange), parts.length)
            parts.gradients.copy_(came.flatten()[: parts.gradients.numel()])
            if parts.left_out is not None:
                left_out = parts.left_out.flatten()[: parts.gradients.numel()]
                self._residuals.set_aside(parts.layout, left_out)
        self._under_way.clear()

    def _give(self, parts: _Parts) -> RowExchange:
        summed = parts.codec.decode(self._exchange.rows(parts.exchange), parts.length).sum(0, keepdim=True)
        encoded = parts.codec.encode(summed)
        if parts.left_out is not None:
            parts.left_out[self._exchange.rank] += (summed - parts.codec.decode(encoded, parts.length))[0]
        return self._exchange.begin_to_all(encoded)
