"""Codecs: a message of gradients as fewer bytes, and back; all rows of a tensor are encoded alike.

What isn't finite stays so: a value that a codec can't tell makes its whole block NaN.
"""

from typing import Protocol

import torch

from peerloom.kit.codec_sizes import is_worth_encoding
from peerloom.kit.sync_method import BF16, FP16, INT4, INT8, MXFP4, ONE_BIT, TOP_K, TWO_BIT, SyncMethod

HALVES = {FP16: torch.float16, BF16: torch.bfloat16}


class Codec(Protocol):
    """Rows [n, d] of float32 or wider as bytes [n, b], uint8, and back; b as `kit.codec_sizes` says."""

    def encode(self, rows: torch.Tensor) -> torch.Tensor:
        """The bytes [n, b] of the rows."""

    def decode(self, encoded: torch.Tensor, length: int) -> torch.Tensor:
        """The rows [n, length] of the bytes, the same on every machine."""


def codec_of(method: SyncMethod, length: int, dtype: torch.dtype) -> Codec:
    """The codec for rows of so many values of gradients of this type; short ones travel as they are."""
    from peerloom.worker.sync.codecs.casting import Casting
    from peerloom.worker.sync.codecs.microscaling import Microscaling
    from peerloom.worker.sync.codecs.quantising import Quantising, Signs
    from peerloom.worker.sync.codecs.sparsifying import Sparsifying
    from peerloom.worker.sync.codecs.two_bits import TwoBits

    if not is_worth_encoding(method, length, dtype.itemsize):
        return Casting(dtype)
    if method.codec in HALVES:
        return Casting(HALVES[method.codec])
    if method.codec == TOP_K:
        return Sparsifying(method.ratio)
    if method.codec == MXFP4:
        return Microscaling()
    if method.codec == TWO_BIT:
        return TwoBits()
    assert method.codec in (INT8, INT4, ONE_BIT), "nothing is saved with any other"
    return Signs() if method.codec == ONE_BIT else Quantising(method.codec)
