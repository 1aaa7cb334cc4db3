"""A task's arguments arrive as text; those that are numbers are read here."""

import math

from peerloom.errors import InvalidArgumentError


def whole(name: str, text: str, low: int, high: int) -> int:
    """A whole number from `low` to `high`. Raises InvalidArgumentError naming the argument."""
    if not text.isdecimal() or not low <= int(text) <= high:
        raise InvalidArgumentError.of_field(name, text[:40], f"a whole number from {low:,} to {high:,}")
    return int(text)


def number(name: str, text: str, low: float, high: float) -> float:
    """A number from `low` to `high`. Raises InvalidArgumentError naming the argument."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise InvalidArgumentError.of_field(name, text[:40], f"a number from {low:,g} to {high:,g}")
    return value
