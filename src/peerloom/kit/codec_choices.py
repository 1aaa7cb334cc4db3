"""What stands behind a codec's name: the RATIO of topk, the RANK of powersgd, and the sizes it is for.

PowerSGD is that of Vogels, Karimireddy and Jaggi (NeurIPS 2019). Pure functions.
"""

import math
from collections.abc import Mapping

from peerloom.errors import InvalidArgumentError
from peerloom.kit.whole_numbers import whole_number

POWER_SGD = "powersgd"
CODEC_FROM = "codec_from"
RANK_CHOICES = {
    f"{POWER_SGD}:RANK": "each matrix as a product of two with RANK columns, with error feedback",
}
FROM_CHOICES = {"BYTES": "the codec is for parameters of at least so many bytes; others travel as they are"}
MOST_RATIO = 0.5  # beyond it the places cost more than the values save
MOST_LOW_RANK = 8  # beyond it the factors' orthogonal columns take longer than the bytes that they save
LEAST_FROM_BYTES, MOST_FROM_BYTES = 1, 1 << 30


def ratio_of(field: str, text: str, number: str) -> float:
    """The RATIO of topk. Raises InvalidArgumentError."""
    try:
        ratio = float(number)
    except ValueError:
        ratio = math.nan
    if not 0 < ratio <= MOST_RATIO:
        limit = f"topk:RATIO with a RATIO above 0 and at most {MOST_RATIO}, as in topk:0.01"
        raise InvalidArgumentError.of_field(field, text, limit)
    return ratio


def low_rank_of(field: str, text: str, number: str) -> int:
    """The RANK of powersgd. Raises InvalidArgumentError."""
    return whole_number(field, text, f"{POWER_SGD}:RANK", number, 1, MOST_LOW_RANK)


def codec_from_of(field: str, text: str, given: Mapping[str, str], *, has_codec: bool) -> int:
    """The BYTES from which on parameters have the codec; 0: all. Raises InvalidArgumentError."""
    if CODEC_FROM not in given:
        return 0
    if not has_codec:
        limit = f"a codec too, as in codec=int8: {CODEC_FROM} says which parameters it is for"
        raise InvalidArgumentError.of_field(field, text, limit)
    form = f"{CODEC_FROM}=BYTES"
    return whole_number(field, text, form, given[CODEC_FROM], LEAST_FROM_BYTES, MOST_FROM_BYTES)
