"""Values as small whole numbers times a scale, or as signs; each block has a scale of its own.

Rounding is to the nearest and leaves nothing to chance: the error is kept by whoever encodes, for the next
step. Of a block with a value that isn't finite the scale is NaN, and so is all that is decoded.
"""

import torch
from torch.nn.functional import pad

from peerloom.kit.codec_sizes import SCALE_BYTES, block_count, block_values
from peerloom.kit.sync_method import INT4, INT8, ONE_BIT

_LARGEST = {INT8: 127, INT4: 7}
_BITS_OF_BYTE = 8


class Quantising:
    """int8 or int4: a block's largest value is the largest number, and none is off by over half a unit."""

    def __init__(self, codec: str) -> None:
        self._codec = codec
        self._largest = _LARGEST[codec]

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        blocks = blocks_of(rows, block_values(self._codec))
        scales = known_scales(blocks.abs().amax(2) / self._largest)
        units = torch.where(scales > 0, scales, 1.0)
        numbers = (blocks / units[:, :, None]).nan_to_num(0.0).round()
        numbers = numbers.clamp(-self._largest, self._largest).to(torch.int8).flatten(1)
        if self._codec == INT4:  # two in a byte, the first in the lower half
            halves = (numbers + _BITS_OF_BYTE).view(torch.uint8)
            return _joined(scales, halves[:, 0::2] | (halves[:, 1::2] << 4))
        return _joined(scales, numbers.view(torch.uint8))

    def decode(self, encoded: torch.Tensor, length: int) -> torch.Tensor:
        scales, content = _split(encoded, block_count(self._codec, length))
        if self._codec == INT4:
            halves = torch.stack([content & 0xF, content >> 4], 2).flatten(1)
            numbers = halves.to(torch.int8) - _BITS_OF_BYTE
        else:
            numbers = content.view(torch.int8)
        return scaled(scales, numbers, length)


class Signs:
    """1bit: the sign of each value, times the mean size of those in its block."""

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        blocks = blocks_of(rows, block_values(ONE_BIT))
        counts = value_counts(blocks, rows.shape[1])
        scales = known_scales((blocks.abs() / counts[:, None]).sum(2))
        signs = (blocks >= 0).to(torch.uint8).view(len(rows), -1, _BITS_OF_BYTE)
        return _joined(scales, (signs << _shifts(rows)).sum(2, dtype=torch.uint8))

    def decode(self, encoded: torch.Tensor, length: int) -> torch.Tensor:
        scales, content = _split(encoded, block_count(ONE_BIT, length))
        bits = (content[:, :, None] >> _shifts(content)) & 1
        return scaled(scales, 2 * bits.flatten(1).to(torch.int8) - 1, length)


def blocks_of(rows: torch.Tensor, size: int) -> torch.Tensor:
    """Rows [n, d] in single precision as blocks [n, b, size], the last one filled up with zeros."""
    filled = pad(rows.float(), (0, -rows.shape[1] % size))
    return filled.view(len(rows), -1, size)


def value_counts(blocks: torch.Tensor, length: int) -> torch.Tensor:
    """How many values each block [n, b, size] of rows of such a `length` has [b]; the last one has fewer."""
    _, count, size = blocks.shape
    return (length - size * torch.arange(count, device=blocks.device)).clamp(max=size)


def known_scales(scales: torch.Tensor) -> torch.Tensor:
    """The same, but NaN for those that aren't finite."""
    return torch.where(scales.isfinite(), scales, torch.nan)


def _joined(scales: torch.Tensor, content: torch.Tensor) -> torch.Tensor:
    return torch.cat([scales.contiguous().view(torch.uint8), content], 1)


def _split(encoded: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    scale_bytes = SCALE_BYTES * count
    scales = encoded[:, :scale_bytes].contiguous().view(torch.float32)
    return scales, encoded[:, scale_bytes:].contiguous()


def scaled(scales: torch.Tensor, numbers: torch.Tensor, length: int) -> torch.Tensor:
    """Rows [n, length] of the blocks' numbers, times the blocks' scales [n, b]."""
    blocks = numbers.view(*scales.shape, -1).float() * scales[:, :, None]
    return blocks.flatten(1)[:, :length]


def _shifts(like: torch.Tensor) -> torch.Tensor:
    return torch.arange(_BITS_OF_BYTE, dtype=torch.uint8, device=like.device)
