"""Two thin matrices in place of a large one, computed so that they round alike on every machine.

How a matrix product or a library's factorisation rounds depends on the processor's vector units. So sums are
made by halving here, and products column by column: of elementwise operations IEEE 754 says every bit.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

VANISHED = 1e-10  # what is left of a column that others span is the noise of double precision
BLOCK_VALUES = 1 << 16  # of a product; these stay in the processor's cache from column to column


def orthonormal(matrices: Sequence[Tensor]) -> list[Tensor]:
    """An orthonormal basis [n, k] of what the columns of each matrix [n, k] span.

    By modified Gram-Schmidt in double precision. A column that those before it span becomes zero, and a
    matrix with a value that isn't finite NaN.
    """
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, matrix in enumerate(matrices):
        rows, columns = matrix.shape
        alike[1 << max(0, rows - 1).bit_length(), columns].append(number)
    found: dict[int, Tensor] = {}
    for (length, _), numbers in alike.items():
        filled = [pad(matrices[one].T.double(), (0, length - len(matrices[one]))) for one in numbers]
        bases = _gram_schmidt(torch.stack(filled))
        for one, basis in zip(numbers, bases, strict=True):
            found[one] = basis[:, : len(matrices[one])].T.to(matrices[one].dtype).contiguous()
    return [found[number] for number in range(len(matrices))]


def first_factor(matrix: Tensor, directions: Tensor) -> Tensor:
    """The matrix [n, m] times the directions [m, k]."""
    # A library is several times slower with one of these operands than with the other's transpose.
    return linear(matrix, directions.T.contiguous())


def second_factor(matrix: Tensor, basis: Tensor) -> Tensor:
    """[m, k]: the transpose of the matrix [n, m] times the basis [n, k]."""
    return (basis.T @ matrix).T.contiguous()


def unspanned(matrix: Tensor, basis: Tensor, second: Tensor) -> Tensor:
    """What is left of the matrix [n, m] without the basis times its second factor."""
    return torch.addmm(matrix, basis, second.T, alpha=-1)


def product(left: Tensor, right: Tensor) -> Tensor:
    """left [n, k] times the transpose of right [m, k]."""
    rows, columns = len(left), len(right)
    result = left.new_empty(rows, columns)
    across = right.T.contiguous()
    step = max(1, BLOCK_VALUES // columns)
    for start in range(0, rows, step):
        block, total = left[start : start + step], result[start : start + step]
        torch.mul(block[:, :1], across[0], out=total)
        for column in range(1, left.shape[1]):
            # Not in one operation: where that rounds once and where twice is the processor's choice.
            total += block[:, column : column + 1] * across[column]
    return result


def first_directions(columns: int, rank: int, place: int, like: Tensor) -> Tensor:
    """The columns [columns, rank] that a search begins with, by chance from the parameter's `place`."""
    chance = torch.Generator().manual_seed(place)
    return torch.randn(columns, rank, generator=chance).to(like.device, like.dtype)


def _gram_schmidt(bases: Tensor) -> Tensor:
    """Of [matrices, k, n], n a power of two."""
    before = _norms(bases)
    for column in range(bases.shape[1]):
        one = bases[:, column]
        norm = _norms(one)
        is_spanned = (norm <= VANISHED * before[:, column]) & norm.isfinite()
        one = torch.where(is_spanned, 0.0, one / norm)
        bases[:, column] = one
        rest = bases[:, column + 1 :]
        rest -= _sums(rest * one[:, None]) * one[:, None]
    return bases


def _norms(rows: Tensor) -> Tensor:
    return _sums(rows * rows).sqrt()


def _sums(values: Tensor) -> Tensor:
    """Over the last dimension, a power of two, which stays with a length of 1."""
    while (length := values.shape[-1]) > 1:
        values = values[..., : length // 2] + values[..., length // 2 :]
    return values
