"""Configuration: one frozen dataclass a service; file, environment and flags, in that order of strength.

A file is TOML with a table a service ([registry]); the environment has PEERLOOM_REGISTRY_LISTEN; a flag
is --listen. An unknown name is an error that suggests the right one.
"""

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

import click

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
    flags, unknown = _flags(cls, section, arguments)
    if unknown:
        known = ["--check-settings", *(f"--{f.name.replace('_', '-')}" for f in _fields(cls))]
        raise ConfigurationError(_unknown("flag", unknown[0].split("=")[0], known))
    file = flags["config"] or environment.get("PEERLOOM_CONFIG", "")
    values = {**_from_file(cls, section, file), **_from_environment(cls, section, environment)}
    for field in _fields(cls):
        given = flags[field.name]
        if given is not None and given != ():
            values[field.name] = _convert(field, given, f"--{field.name.replace('_', '-')}")
    made = cls(**values)
    if flags["check_settings"]:
        sys.exit(0)
    return made


def _fields(cls: type[Any]) -> tuple[dataclasses.Field[Any], ...]:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    for field in fields:
        field.type = hints[field.name]
    return fields


def _flags(cls: type[Any], section: str, arguments: Sequence[str]) -> tuple[Mapping[str, Any], Sequence[str]]:
    """What was given by flags, and the arguments that are none; `--help` ends the process."""
    name = f"peerloom {section.replace('_', '-')}"
    try:
        context = _command(cls, section).make_context(name, list(arguments))
    except click.exceptions.Exit as asked:
        sys.exit(asked.exit_code)
    except click.UsageError as error:
        raise ConfigurationError(error.format_message()) from None
    return context.params, context.args


def _command(cls: type[Any], section: str) -> click.Command:
    options = [click.Option(["--config"], metavar="FILE", help=f"TOML file with a table [{section}].")]
    options.append(
        click.Option(["--check-settings"], is_flag=True, help="Look at the settings, and do no more.")
    )
    for field in _fields(cls):
        # A list may be given part by part: --data-root /a --data-root /b. A switch needs no word.
        switch: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if field.type is bool else {}
        options.append(
            click.Option(
                [f"--{field.name.replace('_', '-')}", field.name],
                metavar=getattr(field.type, "__name__", str(field.type)).upper(),
                help=f"{field.metadata.get('help', '')}  [default: {field.default!r}]",
                type=str,
                multiple=typing.get_origin(field.type) is tuple,
                **switch,
            )
        )
    settings: dict[str, Any] = {"help_option_names": ["-h", "--help"], "ignore_unknown_options": True}
    return click.Command(
        section, params=[*options], help=cls.__doc__, context_settings={**settings, "allow_extra_args": True}
    )


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
