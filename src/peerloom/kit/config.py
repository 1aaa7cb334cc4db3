"""Configuration: one frozen dataclass a service; file, environment and flags, in that order of strength.

A file is TOML with a table a service ([registry]); the environment has PEERLOOM_REGISTRY_LISTEN; a flag
is --listen. An unknown name is an error that suggests the right one.
"""

import argparse
import dataclasses
import difflib
import os
import sys
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from peerloom.errors import ConfigurationError, nearest

C = TypeVar("C")
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def knob(default: Any, help: str) -> Any:
    """A setting with its default; `help` says what raising and lowering it costs."""
    return dataclasses.field(default=default, metadata={"help": help})


def load_config(
    cls: type[C], section: str, arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> C:
    """Builds a service's configuration. Raises ConfigurationError for unknown names and bad values.

    With the flag --check-settings that is all: it ends the process, with status 0.
    """
    parser = _parser(cls, section)
    flags, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        known = ["--check-settings", *(f"--{f.name.replace('_', '-')}" for f in _fields(cls))]
        raise ConfigurationError(_unknown("flag", unknown[0].split("=")[0], known))
    file = flags.config or environment.get("PEERLOOM_CONFIG", "")
    values = {**_from_file(cls, section, file), **_from_environment(cls, section, environment)}
    for field in _fields(cls):
        given = getattr(flags, field.name)
        if given is not None:
            values[field.name] = _convert(field, given, f"--{field.name.replace('_', '-')}")
    made = cls(**values)
    if flags.check_settings:
        sys.exit(0)
    return made


def _fields(cls: type[Any]) -> tuple[dataclasses.Field[Any], ...]:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    for field in fields:
        field.type = hints[field.name]
    return fields


def _parser(cls: type[Any], section: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"peerloom {section.replace('_', '-')}", description=cls.__doc__, allow_abbrev=False
    )
    parser.add_argument("--config", metavar="FILE", help=f"TOML file with a table [{section}]")
    parser.add_argument("--check-settings", action="store_true", help="look at the settings, and do no more")
    for field in _fields(cls):
        text = f"{field.metadata.get('help', '')} (default: {field.default!r})".replace("%", "%%")
        metavar = getattr(field.type, "__name__", str(field.type)).upper()
        # A list may be given part by part: --data-root /a --data-root /b.
        many: dict[str, Any] = {"action": "append"} if typing.get_origin(field.type) is tuple else {}
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            dest=field.name,
            metavar=metavar,
            help=text,
            nargs="?" if field.type is bool else None,
            const="true" if field.type is bool else None,
            **many,
        )
    return parser


def _from_file(cls: type[Any], section: str, file: str) -> dict[str, Any]:
    if not file:
        return {}
    try:
        tables = tomllib.loads(Path(file).read_text())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the configuration file {file} can't be read: {error}") from error
    table = tables.get(section, {})
    if not isinstance(table, dict):
        raise ConfigurationError(f"{section} in {file} must be a table: [{section}]")
    # One file may hold the tables of all services, so only one that is nearly ours is a mistake.
    for name in [] if section in tables else difflib.get_close_matches(section, tables, cutoff=0.8):
        raise ConfigurationError(f"unknown table [{name}] in {file}. Did you mean [{section}]?")
    fields = {field.name: field for field in _fields(cls)}
    for name in table:
        if name not in fields:
            raise ConfigurationError(_unknown(f"name in [{section}] of {file}", name, fields))
    return {name: _convert(fields[name], value, f"{name} in {file}") for name, value in table.items()}


def _from_environment(cls: type[Any], section: str, environment: Mapping[str, str]) -> dict[str, Any]:
    prefix = f"PEERLOOM_{section.upper()}_"
    fields = {prefix + field.name.upper(): field for field in _fields(cls)}
    for name in environment:
        if name.startswith(prefix) and name not in fields:
            raise ConfigurationError(_unknown("environment variable", name, fields))
    return {f.name: _convert(f, environment[name], name) for name, f in fields.items() if name in environment}


def _convert(field: dataclasses.Field[Any], value: Any, where: str) -> Any:
    kind = field.type
    if isinstance(kind, types.UnionType):
        kind = next(option for option in kind.__args__ if option is not type(None))
    try:
        if kind is bool:
            return value if isinstance(value, bool) else _WORDS[str(value).lower()]
        if typing.get_origin(kind) is tuple:
            given = [value] if isinstance(value, str) else value
            parts = [part for each in given for part in str(each).split(",")]
            return tuple(part.strip() for part in parts if part.strip())
        if kind in (str, int) and not isinstance(value, str) and type(value) is not kind:
            raise TypeError("a file's 2.5 is no whole number, and its 7 no text")
        return kind(value)  # type: ignore[operator]  # what it is, only runtime knows
    except (ValueError, KeyError, TypeError):
        name = getattr(kind, "__name__", str(kind))
        raise ConfigurationError(f"{where} is {value!r}, but must be of type {name}.") from None


def _unknown(what: str, name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    near = nearest(name, list(known))
    hint = f" Did you mean {' or '.join(near)}?" if near else f" Known: {', '.join(sorted(known))}."
    return f"unknown {what} {name!r}.{hint}"
