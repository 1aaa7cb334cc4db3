"""Powers of two that the values of a block share, as the byte of an exponent (E8M0); 255 is not a number.

Source: OCP Microscaling Formats (MX) Specification v1.0.
"""

import torch

NOT_A_NUMBER = 255
_BIAS, _MANTISSA_BITS = 127, 23  # of single precision


def exponents_of(sizes: torch.Tensor, less: int, least: int) -> torch.Tensor:
    """The exponents [n, b] of the largest of `sizes` [n, b, d], lower by `less`, and at least `least`.

    Of a block with a value that isn't finite it is `NOT_A_NUMBER`. No size is below 0.
    """
    exponents = sizes.amax(2).view(torch.int32) >> _MANTISSA_BITS
    smaller = (exponents - less).clamp(min=least)
    return torch.where(exponents == NOT_A_NUMBER, NOT_A_NUMBER, smaller)


def inverse_powers(exponents: torch.Tensor, times: int) -> torch.Tensor:
    """`times`, a power of two, by the powers of these exponents; 0 where there is none."""
    inverse = (2 * _BIAS + times.bit_length() - 1 - exponents).clamp(min=0)
    return (inverse << _MANTISSA_BITS).view(torch.float32)


def powers_of(exponents: torch.Tensor) -> torch.Tensor:
    """The powers of these exponents, int32."""
    powers = (exponents << _MANTISSA_BITS).view(torch.float32)
    return torch.where(exponents == NOT_A_NUMBER, torch.nan, powers)
