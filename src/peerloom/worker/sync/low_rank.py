"""PowerSGD: a matrix of gradients travels as two thin ones, found by one step of a power iteration.

Source: Vogels, Karimireddy and Jaggi (NeurIPS 2019). Each rank sends its gradient M times Q, the directions
that the step before has found. From the sum all compute an orthonormal P, and each sends its M's transpose
times P. The sum of these is the next Q, and P Q' the sum of the gradients, as far as P's columns span it.

Both sums are of plain values, so any way to sum up will do. P is computed from the same bits on all ranks, by
operations that round alike everywhere, and so is P Q': the parameters stay the same to the last bit. P spans
what it spans, whatever Q the ranks began with: one that begins anew costs the others a worse fit in one step,
and nothing else.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from peerloom.kit.codec_sizes import is_worth_factoring
from peerloom.kit.sync_method import SyncMethod
from peerloom.worker.sync.bucket_layout import Layout
from peerloom.worker.sync.codecs.casting import wide
from peerloom.worker.sync.coming_sum import ComingSum
from peerloom.worker.sync.low_rank_factors import (
    first_directions,
    first_factor,
    orthonormal,
    product,
    second_factor,
    unspanned,
)
from peerloom.worker.sync.residuals import Residuals
from peerloom.worker.sync.summing import Summing


class LowRankSumming:
    """Two sums of `plain` a step: of what isn't factored and the matrices' first factors, then of the second.

    What a rank's residual gets is what P's columns don't span of its own gradient. `parameters` are the
    model's, in the same order on all ranks.
    """

    def __init__(
        self, plain: Summing, method: SyncMethod, residuals: Residuals, parameters: Sequence[Tensor]
    ) -> None:
        self._plain = plain
        self._method = method
        self._residuals = residuals
        self._numbers = {parameter: number for number, parameter in enumerate(parameters)}
        self._under_way: list[_Bucket] = []
        self._loss = 0.0  # of all ranks, once the sums are put

    def begin_loss(self, own: Tensor) -> None:
        self._plain.begin_loss(own)

    def begin(self, gradients: Tensor, layout: Layout) -> ComingSum:
        """The second factors of all buckets travel together, so who takes one sum waits for all."""
        values = wide(gradients) + self._residuals.of(layout)
        bucket = _Bucket(gradients, layout, torch.empty_like(values), torch.zeros_like(values))
        exact = []
        for parameter, view in layout.by_parameter(values).items():
            if is_factored(self._method, view.shape, gradients.element_size()):
                bucket.matrices[parameter] = view.reshape(len(view), -1)
            else:
                exact.append(view)
                bucket.exact.append(parameter)
        begun = orthonormal([self._directions(*one) for one in bucket.matrices.items()])
        firsts = map(first_factor, bucket.matrices.values(), begun)
        bucket.message = self._begin_message([*exact, *firsts])
        self._under_way.append(bucket)
        return ComingSum(layout, [], self._put)

    def finish(self) -> float:
        self._put()
        return self._loss

    def _put(self) -> None:
        if not self._under_way:
            return
        self._loss = self._plain.finish()
        firsts = [first for bucket in self._under_way for first in bucket.take()]
        if firsts:
            self._sum_seconds(orthonormal(firsts))
        for bucket in self._under_way:
            bucket.gradients.copy_(bucket.sums)
            self._residuals.set_aside(bucket.layout, bucket.left_out)
        self._under_way.clear()

    def _sum_seconds(self, bases: Sequence[Tensor]) -> None:
        """The second factors of all buckets travel together, for few and small messages."""
        places = [(bucket, *one) for bucket in self._under_way for one in bucket.matrices.items()]
        own = [second_factor(matrix, basis) for (_, _, matrix), basis in zip(places, bases, strict=True)]
        message = self._begin_message(own)
        for (bucket, parameter, matrix), basis, second in zip(places, bases, own, strict=True):
            left_out = bucket.layout.by_parameter(bucket.left_out)[parameter]
            left_out.copy_(unspanned(matrix, basis, second).view(left_out.shape))
        self._plain.finish()
        for (bucket, parameter, _), basis, summed in zip(places, bases, message.parts(), strict=True):
            second = summed.to(basis.dtype)  # parameters of two types travel as the longer one
            sums = bucket.layout.by_parameter(bucket.sums)[parameter]
            sums.copy_(product(basis, second).view(sums.shape))
            self._residuals.set_directions_aside(parameter, second)

    def _begin_message(self, tensors: Sequence[Tensor]) -> "_Message":
        flat = torch.cat([one.reshape(-1) for one in tensors])
        self._plain.begin(flat, Layout(len(flat), ()))
        return _Message(flat, [one.shape for one in tensors])

    def _directions(self, parameter: Tensor, matrix: Tensor) -> Tensor:
        """The columns that the last step has found, and others by chance for those that found nothing."""
        columns, rank = matrix.shape[1], self._method.low_rank
        known = self._residuals.directions.get(parameter)
        if known is None or known.shape != (columns, rank):
            known = matrix.new_zeros(columns, rank)
        is_lost = (known == 0).all(0)
        if not bool(is_lost.any()):
            return known
        return torch.where(is_lost, first_directions(columns, rank, self._numbers[parameter], matrix), known)


def is_factored(method: SyncMethod, shape: Sequence[int], value_bytes: int) -> bool:
    """Whether gradients of this shape travel as two factors; one with over two dimensions is a matrix, too.

    Its rows are those of the first dimension.
    """
    if len(shape) < 2 or 0 in shape:
        return False
    return is_worth_factoring(method, shape[0], math.prod(shape[1:]), value_bytes)


@dataclass(frozen=True, eq=False)
class _Message:
    """Tensors that travel as one, and their sums in their place once they have come."""

    flat: Tensor
    shapes: Sequence[torch.Size]

    def parts(self) -> list[Tensor]:
        parts = torch.split(self.flat, [shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]


@dataclass(eq=False)
class _Bucket:
    """A bucket of `gradients`; what becomes of them, and what is left out, by the same layout."""

    gradients: Tensor
    layout: Layout
    sums: Tensor
    left_out: Tensor
    exact: list[Tensor] = field(default_factory=list)  # parameters
    matrices: dict[Tensor, Tensor] = field(default_factory=dict)  # by parameter, this rank's [n, m]
    message: _Message | None = None

    def take(self) -> list[Tensor]:
        """Puts the sums of the exact ones in their places; returns those of the matrices' first factors."""
        assert self.message is not None, "the bucket has begun"
        parts, sums = self.message.parts(), self.layout.by_parameter(self.sums)
        for parameter, part in zip(self.exact, parts, strict=False):
            sums[parameter].copy_(part)
        return parts[len(self.exact) :]
