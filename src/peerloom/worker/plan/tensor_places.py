"""Where tensors lie in bytes: alike on all workers that have tensors of these shapes and types."""

from dataclasses import dataclass

import torch
from torch import Tensor

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


def aligned(size_bytes: int) -> int:
    """So many bytes, and what is left until any type's values may begin."""
    return -(-size_bytes // _ALIGNED_BYTES) * _ALIGNED_BYTES
