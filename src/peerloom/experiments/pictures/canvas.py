"""How all pictures look, and how they are written."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from peerloom.errors import FailedPreconditionError, InvalidArgumentError

ENDINGS = (".png", ".svg")
_DPI = 130
_SIZE_INCHES = (6.4, 3.8)


class Mark(NamedTuple):
    """What tells one series from the others without colour."""

    colour: str
    dashes: str
    marker: str
    hatch: str


# The first four differ in grey by lightness alone; the others by dash, marker and hatching.
_MARKS = (
    Mark("#0b3c5d", "-", "o", ""),
    Mark("#c25b12", "--", "s", "//"),
    Mark("#5fa8a0", "-.", "^", ".."),
    Mark("#b9b9b9", ":", "D", "xx"),
    Mark("#7b2d5e", (0, (5, 1)), "v", "\\\\"),  # type: ignore[arg-type]  # matplotlib takes both forms
    Mark("#8a8a3a", (0, (3, 1, 1, 1)), "P", "--"),  # type: ignore[arg-type]  # as above
    Mark("#3f6fb5", (0, (1, 1)), "X", "++"),  # type: ignore[arg-type]  # as above
    Mark("#d9a441", (0, (8, 2)), "*", "oo"),  # type: ignore[arg-type]  # as above
    Mark("#000000", "-", "", "**"),
)


def marks(count: int) -> list[Mark]:
    """So many, from the start over after nine."""
    around: Iterator[Mark] = cycle(_MARKS)
    return [next(around) for _ in range(count)]


def canvas(
    columns: int = 1, rows: int = 1, size: tuple[float, float] = _SIZE_INCHES
) -> tuple[Any, list[Any]]:
    """A figure with so many plain axes; `size` of each in inches.

    Raises FailedPreconditionError when matplotlib isn't installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise FailedPreconditionError(
            "Pictures need matplotlib, which isn't installed. Get it with: pip install 'peerloom[plot]'",
            reason="MATPLOTLIB_MISSING",
        ) from None
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, number + 1) for number in range(columns * rows)]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#dddddd", linewidth=0.6)
        axis.set_axisbelow(True)
    return figure, axes


def label(axis: Any, title: str, x: str, y: str) -> None:
    """A title and both axes' labels, with their units."""
    axis.set_title(title, fontsize=10, loc="left")
    axis.set_xlabel(x)
    axis.set_ylabel(y)


def bars(
    axis: Any,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    errors: Mapping[str, Any] | None = None,
) -> None:
    """Grouped bars, one group a place on the x axis; None leaves a gap.

    `errors` has the lengths of error bars by series: those below, those above.
    """
    width = 0.8 / len(series)
    for number, ((name, values), mark) in enumerate(zip(series.items(), marks(len(series)), strict=True)):
        places = [place + (number - (len(series) - 1) / 2) * width for place in range(len(groups))]
        axis.bar(
            places,
            [value or 0.0 for value in values],
            width,
            label=name,
            color=mark.colour,
            hatch=mark.hatch,
            edgecolor="white",
            linewidth=0.5,
            yerr=(errors or {}).get(name),
            ecolor="#444444",
            error_kw={"elinewidth": 1.0, "capsize": 2},
        )
    axis.set_xticks(range(len(groups)), groups)


def check_ending(path: Path) -> None:
    """Raises InvalidArgumentError unless the file is to be a PNG or an SVG."""
    if path.suffix.lower() not in ENDINGS:
        raise InvalidArgumentError.of_field(
            "the picture's file", str(path), "a name that ends in .png or .svg"
        )


def save(figure: Any, path: Path) -> Path:
    """Writes a PNG or SVG by the file's ending; its folder is made if need be.

    Raises InvalidArgumentError for another ending, FailedPreconditionError when it can't be written.
    """
    from matplotlib import rc_context

    check_ending(path)
    # Without dates, versions and random ids in it, the same figure gives the same file.
    nameless = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with rc_context({"svg.hashsalt": "peerloom", "svg.fonttype": "none"}):
            figure.savefig(path, dpi=_DPI, metadata=nameless)
    except OSError as error:
        raise FailedPreconditionError(f"{path} can't be written: {error.strerror or error}.") from error
    return path
