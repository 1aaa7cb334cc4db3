"""Chance without state: numbers from a seed and counters, so that a world is the same for every policy."""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_MASK = 2**64 - 1


def uniform(seed: int, host: int, number: int, purpose: int) -> float:
    """A number in (0, 1), always the same for the same arguments.

    The finaliser of SplitMix64: G. Steele, D. Lea, C. Flood, Fast Splittable Pseudorandom Number Generators,
    OOPSLA 2014.
    """
    mixed = (
        seed * 0x9E3779B97F4A7C15 + host * 0xBF58476D1CE4E5B9 + number * 0x94D049BB133111EB + purpose
    ) & _MASK
    for _ in range(2):
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        mixed ^= mixed >> 31
    return ((mixed >> 11) + 0.5) / 2**53


def uniforms(seed: int, host: int, numbers: range, purpose: int) -> Floats:
    """`uniform` of each of the numbers, all at once."""
    first = (seed * 0x9E3779B97F4A7C15 + host * 0xBF58476D1CE4E5B9 + purpose) & _MASK
    # Sums and products of uint64 arrays wrap as the masks do above.
    mixed = np.arange(numbers.start, numbers.stop, dtype=np.uint64) * np.uint64(0x94D049BB133111EB)
    mixed += np.uint64(first)
    for _ in range(2):
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    drawn: Floats = ((mixed >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
    return drawn


def weibulls(u: Floats, shape: float) -> Floats:
    """The quantiles of `u` of a Weibull distribution of mean 1; shape inf: 1 each."""
    if math.isinf(shape):
        return np.ones_like(u)
    quantiles: Floats = weibull_scale(1.0, shape) * np.power(-np.log1p(-u), 1 / shape)
    return quantiles


def weibull_scale(mean: float, shape: float) -> float:
    """The scale that gives the mean."""
    return mean / math.gamma(1 + 1 / shape)
