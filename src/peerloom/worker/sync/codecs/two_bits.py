"""Values as a sign and one of two sizes, in units of their block's root mean square; four in a byte.

The sizes, and what lies between them, leave out the least of values that are as of a normal distribution
(Max, IRE Transactions on Information Theory, 1960). Scales are in bf16, before all numbers. What is left out
is kept by whoever encodes. Of a block whose squares add up to nothing finite the scale is NaN.
"""

import functools

import torch

from peerloom.kit.codec_sizes import HALF_BYTES, block_count, block_values
from peerloom.kit.sync_method import TWO_BIT
from peerloom.worker.sync.codecs.quantising import blocks_of, known_scales, scaled, value_counts

_SMALL, _BORDER, _LARGE = 0.4528, 0.9816, 1.510
_NUMBERS = (-_SMALL, _SMALL, -_LARGE, _LARGE)  # by two bits: whether it is large, and whether above 0
_OF_BYTE = 4


class TwoBits:
    """2bit: in blocks of 128 what is left out never has more squares than what was to be sent."""

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        blocks = blocks_of(rows, block_values(TWO_BIT))
        counts = value_counts(blocks, rows.shape[1])
        scales = torch.linalg.vector_norm(blocks, dim=2) / counts.sqrt()
        large = blocks.abs() > (_BORDER * scales)[:, :, None]
        numbers = large.view(torch.uint8) << 1 | (blocks >= 0).view(torch.uint8)
        fours = numbers.view(len(rows), -1, _OF_BYTE)
        content = fours[:, :, 0] | fours[:, :, 1] << 2 | fours[:, :, 2] << 4 | fours[:, :, 3] << 6
        return torch.cat([known_scales(scales).bfloat16().view(torch.uint8), content], 1)

    def decode(self, encoded: torch.Tensor, length: int) -> torch.Tensor:
        scale_bytes = HALF_BYTES * block_count(TWO_BIT, length)
        scales = encoded[:, :scale_bytes].contiguous().view(torch.bfloat16).float()
        content = encoded[:, scale_bytes:].flatten().to(torch.int32)
        return scaled(scales, _numbers_of_bytes(encoded.device).index_select(0, content), length)


@functools.cache
def _numbers_of_bytes(device: torch.device) -> torch.Tensor:
    """The four numbers of each byte [256, 4], the first in the lowest bits."""
    codes = torch.arange(256)[:, None] >> torch.arange(0, 8, 2) & 3
    return torch.tensor(_NUMBERS)[codes].to(device)
