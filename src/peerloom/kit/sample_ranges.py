"""Positions of an epoch's order, as ranges (first, one past the last): pure functions."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

Range = tuple[int, int]


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The same positions in as few ranges as there can be, in their order. None of `ranges` is empty."""
    found: list[Range] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return tuple(found)


def size(ranges: Iterable[Range]) -> int:
    """Positions in ranges that have none in common."""
    return sum(end - first for first, end in ranges)


def why_not_apart(ranges: Iterable[Range], samples: int) -> str:
    """Why these can't be positions of an epoch of so many samples, each in one range; "" when they can."""
    ordered = sorted(ranges)
    for first, end in ordered:
        if not 0 <= first < end <= samples:
            return f"from {first} to {end} is no part of an epoch of {samples} samples"
    for (_, end), (first, _) in pairwise(ordered):
        if first < end:
            return f"position {first} stands in two of its parts"
    return ""


def others(ranges: Iterable[Range], samples: int) -> tuple[Range, ...]:
    """The positions of an epoch of so many samples that stand in none of the ranges."""
    ends = [0, *(bound for each in joined(ranges) for bound in each), samples]
    return tuple((first, end) for first, end in zip(ends[::2], ends[1::2], strict=True) if first < end)


def cut_out(ranges: Sequence[Range], first: int, end: int) -> tuple[Range, ...]:
    """Of the positions in `ranges`, counted one range after the other, those from `first` to before `end`."""
    found: list[Range] = []
    for low, high in ranges:
        begin, stop = max(low, low + first), min(high, low + end)
        if begin < stop:
            found.append((begin, stop))
        first, end = first - (high - low), end - (high - low)
    return tuple(found)
