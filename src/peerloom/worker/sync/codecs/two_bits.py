"""Values as a sign and one of two sizes, which their block's values share; four in a byte.

The sizes, and what lies between them, leave out the least of values that are as of a normal distribution
(Max, IRE Transactions on Information Theory, 1960). Of a block that is far from one, as where few of its
values are large, they are the means of its own large and small values: fixed ones would leave out nearly all.
Both share two bytes, before all numbers: the larger one has four bits after its first, the smaller one is a
number of steps of it. What is left out is kept by whoever encodes. Of a block whose squares add up to nothing
finite both are NaN.
"""

import functools

import torch

from peerloom.kit.sync_method import TWO_BIT
from peerloom.worker.sync.codecs.value_blocks import blocks_of, divided, joined, known_scales, value_counts

_SMALL, _BORDER, _LARGE = 0.4528, 0.9816, 1.510  # in units of the root mean square
_LEFT_OUT = 0.25  # of the squares, at most, by these; of normal values it is 0.1175
_STEP = 0.06  # of the larger size, as five are the usual smaller one
_STEP_BITS, _MOST_STEPS = 4, 15
_ROUNDED_BITS = 19  # the lower ones of a single precision, which the larger one goes without


class TwoBits:
    """2bit: in blocks of 128 what is left out never has more squares than what was to be sent."""

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        blocks = blocks_of(TWO_BIT, rows)
        is_large, large, small = _sizes_of(blocks, value_counts(blocks, rows.shape[1]))
        numbers = is_large + is_large + (blocks >= 0).view(torch.uint8)
        fours = numbers.flatten(1).view(torch.int32)  # the first in the lowest byte
        fours |= fours >> 6
        content = (fours | fours >> 12).to(torch.uint8)
        return joined(TWO_BIT, _packed(known_scales(large), small), content, rows.shape[1])

    def decode(self, encoded: torch.Tensor, length: int) -> torch.Tensor:
        packed, content = divided(TWO_BIT, encoded, length, torch.int16)
        large, small = _unpacked(packed)
        signs, signs_of_large = _signs_of_bytes(encoded.device)
        places, blocks = content.flatten().to(torch.int32), (*packed.shape, -1)
        of_all = signs.index_select(0, places).view(torch.bfloat16).view(blocks)
        of_large = signs_of_large.index_select(0, places).view(torch.bfloat16).view(blocks)
        found = torch.addcmul(of_all * small[:, :, None], of_large, (large - small)[:, :, None])
        return found.flatten(1)[:, :length]


def _sizes_of(blocks: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Which values are large [n, b, size], uint8, and both sizes [n, b]; `counts` [b] are of a block."""
    lengths, usual = blocks.abs(), torch.linalg.vector_norm(blocks, dim=2) / counts.sqrt()
    borders = _BORDER * usual
    is_large = (lengths > borders[:, :, None]).view(torch.uint8)
    large_counts = is_large.sum(2, dtype=torch.int32)
    large_sums = torch.relu(lengths - borders[:, :, None]).sum(2) + borders * large_counts
    small_counts, small_sums = counts - large_counts, lengths.sum(2) - large_sums
    large, small = _LARGE * usual, _SMALL * usual
    told = large * (2 * large_sums - large * large_counts) + small * (2 * small_sums - small * small_counts)
    is_usual = told >= (1 - _LEFT_OUT) * counts * usual.square()
    own_small = small_sums / small_counts
    own_large = torch.where(large_counts > 0, large_sums / large_counts, own_small)
    return is_large, torch.where(is_usual, large, own_large), torch.where(is_usual, small, own_small)


def _packed(large: torch.Tensor, small: torch.Tensor) -> torch.Tensor:
    """Both sizes as one number of 16 bits; the larger one has a sign that isn't needed."""
    kept = (large.view(torch.int32) + (1 << _ROUNDED_BITS - 1)) >> _ROUNDED_BITS
    steps = small / (kept << _ROUNDED_BITS).view(torch.float32) / _STEP
    known = steps.nan_to_num(0.0, 0.0, 0.0).round().clamp(max=_MOST_STEPS)
    return (kept << _STEP_BITS | known.to(torch.int32)).to(torch.int16)


def _unpacked(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = packed.to(torch.int32)
    kept = numbers >> _STEP_BITS & (1 << 16 - _STEP_BITS) - 1
    large = (kept << _ROUNDED_BITS).view(torch.float32)
    return large, large * (numbers & _MOST_STEPS) * _STEP


@functools.cache
def _signs_of_bytes(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each byte's four numbers the signs, the first in the lowest bits; then the same, 0 for small ones.

    The four are in bf16, as one value of 64 bits, which is found in half the time.
    """
    codes = torch.arange(256)[:, None] >> torch.arange(0, 8, 2) & 3
    signs = torch.where(codes & 1 > 0, 1.0, -1.0)
    all_signs, of_large = (
        each.bfloat16().view(torch.int64).flatten() for each in (signs, signs * (codes >> 1))
    )
    return all_signs.to(device), of_large.to(device)
