"""How many bytes a codec makes of so many values, and where that is worth it: pure functions.

Both sides of an exchange know a message's length by these, so no message carries it.
"""

import math
from dataclasses import dataclass

from peerloom.kit.codec_choices import POWER_SGD
from peerloom.kit.sync_method import BF16, FP16, INT4, INT8, MXFP4, NONE, ONE_BIT, TOP_K, TWO_BIT, SyncMethod

SCALE_BYTES, VALUE_BYTES, PLACE_BYTES, HALF_BYTES = 4, 4, 4, 2
_BITS_OF_BYTE = 8
LEAST_SAVED_BYTES = 1400  # of a message: what saves less than a packet's payload saves no packet


@dataclass(frozen=True)
class _Blocks:
    """So many values share scales of so many bytes, and have so many bits each."""

    values: int
    value_bits: int
    scale_bytes: int


# Smaller blocks fit their values better, and cost more.
_BLOCKS = {
    INT8: _Blocks(256, 8, SCALE_BYTES),
    INT4: _Blocks(256, 4, SCALE_BYTES),
    ONE_BIT: _Blocks(256, 1, SCALE_BYTES),
    MXFP4: _Blocks(32, 4, 1),
    TWO_BIT: _Blocks(128, 2, HALF_BYTES),
}


def kept_values(ratio: float, values: int) -> int:
    """How many of a message's values topk sends, at least one."""
    return max(1, math.ceil(ratio * values))


def block_values(codec: str) -> int:
    """How many values share a scale."""
    return _BLOCKS[codec].values


def block_count(codec: str, values: int) -> int:
    """Blocks in a message of so many values; the last one may have fewer."""
    return -(-values // block_values(codec))


def number_bytes(codec: str, values: int) -> int:
    """Those of so many values without their scales."""
    return -(-values * _BLOCKS[codec].value_bits // _BITS_OF_BYTE)


def scale_bytes(codec: str, values: int) -> int:
    """Those of the scales of so many values."""
    return block_count(codec, values) * _BLOCKS[codec].scale_bytes


def encoded_bytes(method: SyncMethod, values: int, value_bytes: int = VALUE_BYTES) -> int:
    """The length of a message of so many values, which take `value_bytes` each as they are.

    That of powersgd is of a square matrix of these values: both its factors together.
    """
    if method.codec == NONE:
        return values * value_bytes
    if method.codec in (FP16, BF16):
        return values * HALF_BYTES
    if method.codec == POWER_SGD:
        return 2 * square_side(values) * method.low_rank * value_bytes
    if method.codec == TOP_K:
        return kept_values(method.ratio, values) * (VALUE_BYTES + PLACE_BYTES)
    return scale_bytes(method.codec, values) + number_bytes(method.codec, values)


def is_worth_encoding(method: SyncMethod, values: int, value_bytes: int = VALUE_BYTES) -> bool:
    """Whether a message is so much shorter that it takes a packet less; else it travels as it is."""
    plain = values * value_bytes
    return plain - encoded_bytes(method, values, value_bytes) >= LEAST_SAVED_BYTES


def square_side(values: int) -> int:
    """The side of the smallest square matrix that holds so many values."""
    return math.isqrt(values - 1) + 1 if values else 0


def is_worth_factoring(method: SyncMethod, rows: int, columns: int, value_bytes: int = VALUE_BYTES) -> bool:
    """Whether powersgd's two factors of a matrix are so much shorter; else it travels as it is.

    They never are where a side isn't longer than the rank. `codec_from` counts, too.
    """
    plain = rows * columns * value_bytes
    factors = (rows + columns) * method.low_rank * value_bytes
    return plain >= method.codec_from and plain - factors >= LEAST_SAVED_BYTES
