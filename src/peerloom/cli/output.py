"""Answers on standard output: an aligned table, JSON or YAML."""

import dataclasses
import enum
import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.cells import cell_len

from peerloom.cli.escaping import escaped_lines
from peerloom.kit.printable import Column, escaped

Row = TypeVar("Row")
_GAP = 2
_ENDLESS = 1_000_000
_NARROWEST = 20
_WORD_KEPT = 20  # columns; longer words go on in the next line where a table is too wide


def to_plain(value: Any) -> Any:
    """Dataclasses, enums, times and paths as what JSON and YAML know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    return value


def say(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Writes to the terminal; all that the command line tells goes through here, escaped."""
    click.echo(escaped_lines(str(text)), err=err, nl=nl)


def print_document(value: Any, output: str) -> None:
    """One JSON or YAML document."""
    plain = to_plain(value)
    if output == "yaml":
        import yaml

        text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
        if escaped_lines(text) != text:  # a plain scalar knows no escapes
            text = yaml.safe_dump(plain, sort_keys=False)
        say(text, nl=False)
    else:
        say(json.dumps(plain, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    """One object on one line."""
    say(json.dumps(to_plain(value), ensure_ascii=False))


def print_list(rows: Sequence[Row], columns: Sequence[Column], output: str, when_empty: str) -> None:
    """A list in the form asked for; an empty table is a message on standard error."""
    if output != "table":
        print_document(rows, output)
    elif rows:
        for line in table_lines(rows, columns):
            say(line)
    else:
        say(when_empty, err=True)


def table_lines(
    rows: Iterable[Any], columns: Sequence[Column], indent: str = "", width: int | None = None
) -> list[str]:
    """A table's lines, the heads in bold, columns two spaces apart.

    In a terminal too narrow for it (`width` columns; None: that of standard output, endless where it is none)
    the long texts of a row go on in further lines below each other: nothing is lost or out of line. Where
    even the words don't fit beside each other, each row is a block, with a line for each column.
    """
    cells = [[escaped(column.text(row)) for column in columns] for row in rows]
    heads = [column.head for column in columns]
    widths = [max(map(cell_len, each)) for each in zip(heads, *cells, strict=True)]
    room = (terminal_width() if width is None else width) - cell_len(indent)
    if sum(widths) + _GAP * (len(widths) - 1) > room:
        return [indent + line for line in _folded(cells, columns, room)]
    head, *lines = (_aligned(texts, columns, widths) for texts in (heads, *cells))
    return [click.style(indent + head, bold=True), *(indent + line for line in lines)]


def terminal_width() -> int:
    """How many columns standard output shows; where it is no terminal, more than any table has."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _ENDLESS


def _aligned(texts: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    blanks = [" " * (width - cell_len(text)) for text, width in zip(texts, widths, strict=True)]
    parts = zip(texts, blanks, columns, strict=True)
    return (" " * _GAP).join(b + text if c.right else text + b for text, b, c in parts).rstrip()


def _folded(cells: Sequence[Sequence[str]], columns: Sequence[Column], room: int) -> list[str]:
    heads = [column.head for column in columns]
    words = [_longest_word(texts) for texts in zip(heads, *cells, strict=True)]
    if sum(words) + _GAP * (len(words) - 1) > room:
        return _blocks(heads, cells, room)
    # No column is narrower than its head, so the heads are one line.
    head, *lines = _wrapped([heads, *cells], [column.right for column in columns], words, room)
    return [click.style(head, bold=True), *lines]


def _blocks(heads: Sequence[str], cells: Sequence[Sequence[str]], room: int) -> list[str]:
    lines: list[str] = []
    for row in cells:
        lines += [""] * bool(lines)
        fields = list(zip(heads, row, strict=True))
        lines += _wrapped(fields, [False, False], [max(map(cell_len, heads)), 1], room)
    return lines


def _longest_word(texts: Sequence[str]) -> int:
    """What a column takes at least: a long name may be cut, the head may not."""
    words = [cell_len(word) for text in texts[1:] for word in text.split()]
    return max(cell_len(texts[0]), min(max(words, default=0), _WORD_KEPT))


def _wrapped(
    rows: Sequence[Sequence[str]], is_right: Sequence[bool], least: Sequence[int], room: int
) -> list[str]:
    from rich.console import Console  # here, as few tables need it
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, show_edge=False, show_header=False)
    for right, width in zip(is_right, least, strict=True):
        table.add_column(justify="right" if right else "left", overflow="fold", min_width=width)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(file=StringIO(), width=max(room, _NARROWEST), color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def print_fields(fields: Sequence[tuple[str, str]], indent: str = "") -> None:
    """One thing as "name  value" lines, aligned; fields without a value are left out."""
    width = max((len(name) for name, value in fields if value), default=0)
    for name, value in fields:
        if value:
            say(f"{indent}{click.style(name.ljust(width), bold=True)}  {escaped(value)}")
