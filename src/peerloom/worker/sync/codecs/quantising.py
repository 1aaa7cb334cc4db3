"""Values as small whole numbers times a scale, or as signs; each block has a scale of its own.

Rounding is to the nearest and leaves nothing to chance: the error is kept by whoever encodes, for the next
step. Of a block with a value that isn't finite the scale is NaN, and so is all that is decoded.
"""

import torch

from peerloom.kit.sync_method import INT4, INT8, ONE_BIT
from peerloom.worker.sync.codecs.value_blocks import (
    blocks_of,
    divided,
    joined,
    known_scales,
    scaled,
    value_counts,
)

_LARGEST = {INT8: 127, INT4: 7}
_BITS_OF_BYTE = 8


class Quantising:
    """int8 or int4: a block's largest value is the largest number, and none is off by over half a unit."""

    def __init__(self, codec: str) -> None:
        self._codec = codec
        self._largest = _LARGEST[codec]

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        blocks = blocks_of(self._codec, rows)
        scales = known_scales(blocks.abs().amax(2) / self._largest)
        units = torch.where(scales > 0, scales, 1.0)
        numbers = (blocks / units[:, :, None]).nan_to_num(0.0).round()
        numbers = numbers.clamp(-self._largest, self._largest).to(torch.int8).flatten(1)
        if self._codec == INT4:  # two in a byte, the first in the lower half
            halves = (numbers + _BITS_OF_BYTE).view(torch.uint8)
            numbers = halves[:, 0::2] | (halves[:, 1::2] << 4)
        return joined(self._codec, scales, numbers.view(torch.uint8), rows.shape[1])

    def decode(self, encoded: torch.Tensor, length: int) -> torch.Tensor:
        scales, content = divided(self._codec, encoded, length, torch.float32)
        if self._codec == INT4:
            halves = torch.stack([content & 0xF, content >> 4], 2).flatten(1)
            numbers = halves.to(torch.int8) - _BITS_OF_BYTE
        else:
            numbers = content.view(torch.int8)
        return scaled(scales, numbers, length)


class Signs:
    """1bit: the sign of each value, times the mean size of those in its block."""

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        blocks = blocks_of(ONE_BIT, rows)
        counts = value_counts(blocks, rows.shape[1])
        scales = known_scales((blocks.abs() / counts[:, None]).sum(2))
        signs = (blocks >= 0).to(torch.uint8).view(len(rows), -1, _BITS_OF_BYTE)
        numbers = (signs << _shifts(rows)).sum(2, dtype=torch.uint8)
        return joined(ONE_BIT, scales, numbers, rows.shape[1])

    def decode(self, encoded: torch.Tensor, length: int) -> torch.Tensor:
        scales, content = divided(ONE_BIT, encoded, length, torch.float32)
        bits = (content[:, :, None] >> _shifts(content)) & 1
        return scaled(scales, 2 * bits.flatten(1).to(torch.int8) - 1, length)


def _shifts(like: torch.Tensor) -> torch.Tensor:
    return torch.arange(_BITS_OF_BYTE, dtype=torch.uint8, device=like.device)
