"""Rows of values as blocks, and a message of them: first all scales of a row, then all its numbers.

The last block of a row may have fewer values than others; what fills it up doesn't travel.
"""

import torch
from torch.nn.functional import pad

from peerloom.kit.codec_sizes import block_count, block_values, number_bytes, scale_bytes


def blocks_of(codec: str, rows: torch.Tensor) -> torch.Tensor:
    """Rows [n, d] in single precision as blocks [n, b, size], the last one filled up with zeros."""
    size = block_values(codec)
    filled = pad(rows.float(), (0, -rows.shape[1] % size))
    return filled.view(len(rows), -1, size)


def value_counts(blocks: torch.Tensor, length: int) -> torch.Tensor:
    """How many values each block [n, b, size] of rows of such a `length` has [b]; the last one has fewer."""
    _, count, size = blocks.shape
    return (length - size * torch.arange(count, device=blocks.device)).clamp(max=size)


def known_scales(scales: torch.Tensor) -> torch.Tensor:
    """The same, but NaN for those that aren't finite."""
    return torch.where(scales.isfinite(), scales, torch.nan)


def joined(codec: str, scales: torch.Tensor, numbers: torch.Tensor, length: int) -> torch.Tensor:
    """The message of rows of such a `length`: of scales [n, b] of any type, and of whole blocks' numbers."""
    return torch.cat([scales.contiguous().view(torch.uint8), numbers[:, : number_bytes(codec, length)]], 1)


def divided(
    codec: str, encoded: torch.Tensor, length: int, kind: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Its scales [n, b] of that type, and whole blocks' numbers [n, bytes]."""
    end = scale_bytes(codec, length)
    # A copy: a row of an odd length can't be seen as one of longer numbers.
    scales = encoded[:, :end].clone(memory_format=torch.contiguous_format).view(kind)
    whole = number_bytes(codec, block_count(codec, length) * block_values(codec))
    missing = end + whole - encoded.shape[1]
    return scales, pad(encoded[:, end:], (0, missing)) if missing else encoded[:, end:].contiguous()


def scaled(scales: torch.Tensor, numbers: torch.Tensor, length: int) -> torch.Tensor:
    """Rows [n, length] of the blocks' numbers, times the blocks' scales [n, b]."""
    blocks = numbers.view(*scales.shape, -1).float() * scales[:, :, None]
    return blocks.flatten(1)[:, :length]
