"""Answers on standard output: an aligned table, JSON or YAML."""

import dataclasses
import enum
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from peerloom.cli.escaping import escaped_lines
from peerloom.kit.printable import escaped

Row = TypeVar("Row")


@dataclasses.dataclass(frozen=True)
class Column:
    """A table's column: its head, how a row becomes its text, and whether it holds numbers."""

    head: str
    text: Callable[[Any], str]
    right: bool = False


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


def table_lines(rows: Iterable[Any], columns: Sequence[Column], indent: str = "") -> list[str]:
    """A table's lines, the heads in bold, columns two spaces apart."""
    cells = [[escaped(column.text(row)) for column in columns] for row in rows]
    widths = [max([len(c.head), *(len(row[i]) for row in cells)]) for i, c in enumerate(columns)]
    heads = indent + _aligned([column.head for column in columns], columns, widths)
    return [click.style(heads, bold=True), *(indent + _aligned(row, columns, widths) for row in cells)]


def _aligned(texts: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    parts = [
        text.rjust(width) if column.right else text.ljust(width)
        for text, column, width in zip(texts, columns, widths, strict=True)
    ]
    return "  ".join(parts).rstrip()


def print_fields(fields: Sequence[tuple[str, str]], indent: str = "") -> None:
    """One thing as "name  value" lines, aligned; fields without a value are left out."""
    width = max((len(name) for name, value in fields if value), default=0)
    for name, value in fields:
        if value:
            say(f"{indent}{click.style(name.ljust(width), bold=True)}  {escaped(value)}")
