"""How a tensor lies in pieces with several workers, and is whole again: along one of its dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor


@dataclass(frozen=True)
class TensorCut:
    """A tensor of this whole `shape`, cut along `dim` in `pieces`, as equal as whole `units` allow.

    There are as many `sections` along `dim`, one after the other, and each piece has a part of each: of a
    linear layer for queries, keys and values some heads of all three. A section's `units` stay whole.
    """

    shape: tuple[int, ...]
    dim: int
    pieces: int
    units: int
    sections: int = 1

    @cached_property
    def unit_bounds(self) -> tuple[tuple[int, int], ...]:
        """The first unit of each piece, and one past its last."""
        size, more = divmod(self.units, self.pieces)
        firsts = [number * size + min(number, more) for number in range(self.pieces + 1)]
        return tuple(pairwise(firsts))

    @property
    def unit_length(self) -> int:
        """Along `dim`."""
        return self.shape[self.dim] // self.sections // self.units

    def length(self, piece: int) -> int:
        """That of a piece along `dim`."""
        first, end = self.unit_bounds[piece]
        return (end - first) * self.unit_length * self.sections

    def piece_shape(self, piece: int) -> tuple[int, ...]:
        """That of a piece."""
        return (*self.shape[: self.dim], self.length(piece), *self.shape[self.dim + 1 :])

    def piece(self, whole: Tensor, piece: int) -> Tensor:
        """A piece of a whole tensor, which may be a view of it."""
        first, end = (unit * self.unit_length for unit in self.unit_bounds[piece])
        sections = whole.chunk(self.sections, self.dim)
        return torch.cat([section.narrow(self.dim, first, end - first) for section in sections], self.dim)

    def whole(self, pieces: Sequence[Tensor]) -> Tensor:
        """The tensor that these are the pieces of, in their order."""
        parts = [each.chunk(self.sections, self.dim) for each in pieces]
        return torch.cat([each[number] for number in range(self.sections) for each in parts], self.dim)
