"""Where tensors lie in bytes: alike on all workers that have tensors of these shapes and types."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from peerloom.errors import InvalidArgumentError

_ALIGNED_BYTES = 16  # any type's values can be read where they lie


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor of this name, shape and type lies."""

    name: str
    shape: torch.Size
    dtype: torch.dtype
    offset: int

    @property
    def end(self) -> int:
        """Where the next one may begin."""
        return self.offset + aligned(self.shape.numel() * self.dtype.itemsize)

    def of(self, content: Tensor) -> Tensor:
        """The tensor itself, in the memory of `content`, uint8 [n]."""
        end = self.offset + self.shape.numel() * self.dtype.itemsize
        return content[self.offset : end].view(self.dtype).view(self.shape)


def put_gradients(content: Tensor, places: Sequence[TensorPlace], gradients: Sequence[Tensor | None]) -> None:
    """Puts them in their places in `content`, which begins with a byte for each: whether there is one."""
    for number, (place, gradient) in enumerate(zip(places, gradients, strict=True)):
        if gradient is not None:
            content[number] = 1
            place.of(content).copy_(gradient)


def gradients_in(content: Tensor, places: Sequence[TensorPlace]) -> list[Tensor | None]:
    """The same again, in the memory of `content`."""
    has = content[: len(places)].tolist()
    return [place.of(content) if is_there else None for place, is_there in zip(places, has, strict=True)]


def check_dense(name: str, gradient: Tensor | None, why_not: str, reason: str) -> None:
    """Raises InvalidArgumentError for a sparse gradient, with what to do instead."""
    if gradient is not None and gradient.is_sparse:
        what = f"The gradient of {name} is sparse, and {why_not}, or make the layer's gradients dense."
        raise InvalidArgumentError(what, reason=reason)


def aligned(size_bytes: int) -> int:
    """So many bytes, and what is left until any type's values may begin."""
    return -(-size_bytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
