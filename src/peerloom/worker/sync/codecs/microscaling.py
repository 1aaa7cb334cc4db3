"""Values as floating-point numbers of 4 bits, 32 of which share a power of two: MXFP4.

Source: OCP Microscaling Formats (MX) Specification v1.0. A number has a sign, two bits of exponent and
one of mantissa (E2M1), so small values are told more finely than by whole numbers, and what shares a scale
with a far larger value isn't lost. Rounding is to the nearest, of two equally near numbers to the greater
one; what is larger than the largest is told as that. Of a block with a value that isn't finite the scale
is NaN.
"""

import functools

import torch

from peerloom.kit.sync_method import MXFP4
from peerloom.worker.sync.codecs.value_blocks import blocks_of, divided, joined, scaled

_NUMBERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # by the three lower bits; the fourth is the sign
_LARGEST_EXPONENT = 2  # of 4.0 and 6.0
_LEAST = 2  # so that a quarter of the smallest scale has an inverse
_QUARTERS, _ZERO = 4, 32  # all borders between numbers are whole quarters; values are from -8 to 8
_MASK = 0x7F7F  # of two bytes below 128
_NOT_A_NUMBER = 255  # as the byte of an exponent (E8M0)
_BIAS, _MANTISSA_BITS = 127, 23  # of single precision


class Microscaling:
    """mxfp4: none is off by over a quarter of its block's largest value, and small ones by far less."""

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        blocks = blocks_of(MXFP4, rows)
        scales = _exponents_of(blocks.abs())
        quarters = blocks * _inverse_powers(scales)[:, :, None]
        places = quarters.add_(_ZERO).to(torch.uint8)
        pairs = places.flatten(1).view(torch.int16).to(torch.int32) & _MASK
        content = _bytes_of_places(rows.device).index_select(0, pairs.flatten())
        return joined(MXFP4, scales.to(torch.uint8), content.view(len(rows), -1), rows.shape[1])

    def decode(self, encoded: torch.Tensor, length: int) -> torch.Tensor:
        exponents, content = divided(MXFP4, encoded, length, torch.uint8)
        pairs = _numbers_of_bytes(encoded.device).index_select(0, content.flatten().to(torch.int32))
        return scaled(_powers_of(exponents.to(torch.int32)), pairs.view(torch.float32), length)


def _exponents_of(sizes: torch.Tensor) -> torch.Tensor:
    """The exponents [n, b] of the scales of blocks whose values have such `sizes` [n, b, d]."""
    exponents = sizes.amax(2).view(torch.int32) >> _MANTISSA_BITS
    smaller = (exponents - _LARGEST_EXPONENT).clamp(min=_LEAST)
    return torch.where(exponents == _NOT_A_NUMBER, _NOT_A_NUMBER, smaller)


def _inverse_powers(exponents: torch.Tensor) -> torch.Tensor:
    """How many quarters a value of 1 is, in units of these scales; 0 where the scale isn't finite."""
    inverse = (2 * _BIAS + _QUARTERS.bit_length() - 1 - exponents).clamp(min=0)
    return (inverse << _MANTISSA_BITS).view(torch.float32)


def _powers_of(exponents: torch.Tensor) -> torch.Tensor:
    powers = (exponents << _MANTISSA_BITS).view(torch.float32)
    return torch.where(exponents == _NOT_A_NUMBER, torch.nan, powers)


@functools.cache
def _bytes_of_places(device: torch.device) -> torch.Tensor:
    """The byte of two numbers, by the places of two values, the first in the lower half of both."""
    middles = [(place + 0.5 - _ZERO) / _QUARTERS for place in range(2 * _ZERO + 1)]
    codes = torch.zeros(128, dtype=torch.uint8)
    for place, middle in enumerate(middles):
        nearest = min(range(8), key=lambda code: abs(_NUMBERS[code] - abs(middle)))
        codes[place] = nearest | (8 if middle < 0 and nearest else 0)
    return (codes.repeat(256) | (codes << 4).repeat_interleave(256)).to(device)


@functools.cache
def _numbers_of_bytes(device: torch.device) -> torch.Tensor:
    """The two numbers of each byte, as one value of 64 bits, which is found in half the time."""
    numbers = torch.tensor([*_NUMBERS, *(-number for number in _NUMBERS)])
    pairs = torch.stack([numbers.repeat(16), numbers.repeat_interleave(16)], 1)
    return pairs.view(torch.int64).flatten().to(device)
