"""Values as a power of two that 40 of them share, as its negative, or as nothing; five in a byte.

After TernGrad (Wen et al., NeurIPS 2017), with rounding to the nearest in place of chance: what is left out
is kept by whoever encodes. The power is that which leaves out least, by the squares. Of a block with a value
that isn't finite it is NaN.
"""

import functools

import torch

from peerloom.kit.codec_sizes import block_count, block_values
from peerloom.kit.sync_method import TERNARY
from peerloom.worker.sync.codecs.quantising import blocks_of
from peerloom.worker.sync.codecs.shared_exponents import NOT_A_NUMBER, exponents_of, powers_of

_TRIED = 3  # the power of the largest value, its half, and its quarter
_OF_BYTE = 5  # 3 to the power 5 is 243


class Ternary:
    """ternary: what is left out never has more squares than what was to be sent."""

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        blocks = blocks_of(rows, block_values(TERNARY))
        sizes = blocks.abs()
        largest = exponents_of(sizes, less=0, least=_TRIED)
        tried = [largest - halved for halved in range(_TRIED)]
        least_left = torch.stack([_kept(sizes, powers_of(one)) for one in tried]).argmax(0)
        exponents = torch.where(largest == NOT_A_NUMBER, largest, largest - least_left.to(torch.int32))
        borders = powers_of(exponents)[:, :, None] / 2
        numbers = (blocks > borders).to(torch.uint8) + 1 - (blocks < -borders).to(torch.uint8)
        weights = _weights(rows.device)
        content = (numbers.view(len(rows), -1, _OF_BYTE) * weights).sum(2, dtype=torch.uint8)
        return torch.cat([exponents.to(torch.uint8), content], 1)

    def decode(self, encoded: torch.Tensor, length: int) -> torch.Tensor:
        count, size = block_count(TERNARY, length), block_values(TERNARY)
        powers = powers_of(encoded[:, :count].to(torch.int32))
        content = encoded[:, count:].flatten().to(torch.int32)
        numbers = _numbers_of_bytes(encoded.device).index_select(0, content)
        return (numbers.view(len(encoded), count, size) * powers[:, :, None]).flatten(1)[:, :length]


def _kept(sizes: torch.Tensor, powers: torch.Tensor) -> torch.Tensor:
    """By how much the sum of squares [n, b] is less for what is sent of such `sizes` [n, b, d]."""
    sent = sizes > powers[:, :, None] / 2
    return powers * (2 * (sizes * sent).sum(2) - powers * sent.sum(2))


@functools.cache
def _weights(device: torch.device) -> torch.Tensor:
    return torch.tensor([3**place for place in range(_OF_BYTE)], dtype=torch.uint8, device=device)


@functools.cache
def _numbers_of_bytes(device: torch.device) -> torch.Tensor:
    """The five numbers of each byte [256, 5]; those from 243 on, which nobody makes, begin anew."""
    codes = torch.arange(256)[:, None] // 3 ** torch.arange(_OF_BYTE) % 3
    return (codes - 1).float().to(device)
