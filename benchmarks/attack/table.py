"""The verdicts as a table for a terminal."""

import textwrap
from collections.abc import Sequence

from benchmarks.attack.outcomes import Verdict

_WIDTHS = (30, 8, 34, 50, 34)
_HEADS = ("attack", "by", "tried", "gained", "the same in a plain system")


def table(verdicts: Sequence[Verdict]) -> str:
    """All rows, each cell wrapped to its column."""
    lines = [_row(_HEADS), _row(tuple("-" * width for width in _WIDTHS))]
    lines += [_row((one.attack, one.by, one.tried, one.gained, one.control)) for one in verdicts]
    return "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, _WIDTHS, strict=True)]
    height = max(map(len, wrapped))
    filled = [column + [""] * (height - len(column)) for column in wrapped]
    rows = zip(*filled, strict=True)
    return "\n".join(
        " | ".join(cell.ljust(width) for cell, width in zip(row, _WIDTHS, strict=True)).rstrip()
        for row in rows
    )
