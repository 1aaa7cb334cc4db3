"""A YAML file checked against the schema, with the line of everything in it.

The schema is JSON Schema's own words, of which this checks those that the testbed's uses: type, enum,
pattern (of the whole text), minimum, maximum, minItems, maxItems, items, properties, required,
additionalProperties and $ref. So the file that editors check against and what the parser takes are one.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from peerloom.errors import ConfigurationError, nearest

Path = tuple[str | int, ...]
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


@cache
def schema() -> dict[str, Any]:
    """The testbed's JSON Schema, as shipped."""
    text = files("peerloom.testbed").joinpath("schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


class Document:
    """Plain data of one file; `fail` raises an error that names the file and the line."""

    def __init__(self, name: str, content: Any, lines: Mapping[Path, int]) -> None:
        self.name = name
        self.content = content
        self._lines = lines

    def line(self, path: Path) -> int:
        """The line of what lies at `path`, or of what would hold it."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def fail(self, path: Path, message: str) -> ConfigurationError:
        """The error to raise for what lies at `path`."""
        return _error(self.name, self.line(path), message)


def _error(name: str, line: int, message: str) -> ConfigurationError:
    return ConfigurationError(f"{name}, line {line}: {message}", metadata={"file": name, "line": str(line)})


def read_document(name: str, text: str) -> Document:
    """Parses and checks. Raises ConfigurationError for bad YAML and for whatever breaks the schema."""
    lines: dict[Path, int] = {}
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise ConfigurationError(f"{name} is empty; docs/network.md shows what a testbed file holds.")
        content = _plain(root, (), lines, name)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{name} is no YAML: {' '.join(str(error).split())}") from error
    document = Document(name, content, lines)
    _check_version(document)
    _check(document, content, schema(), ())
    return document


def _check_version(document: Document) -> None:
    """Before all else: a newer file may have keys that aren't known here."""
    content = document.content
    version = content.get("version") if isinstance(content, dict) else None
    if isinstance(version, int) and version > 1:
        message = f"version is {version}, and this Peerloom reads version 1. Install a newer Peerloom."
        raise document.fail(("version",), message)
    if version is not None and version != 1:
        raise document.fail(("version",), f"version is {version!r}, but must be 1.")


def _plain(node: yaml.Node, path: Path, lines: dict[Path, int], name: str) -> Any:
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, number), lines, name) for number, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return yaml.SafeLoader("").construct_object(node)
    content: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key, line = str(key_node.value), key_node.start_mark.line + 1
        if key in content:
            raise _error(name, line, f"{key!r} is there twice.")
        content[key] = _plain(value_node, (*path, key), lines, name)
        lines[(*path, key)] = line
    return content


def _check(document: Document, value: Any, rule: Mapping[str, Any], path: Path) -> None:
    while "$ref" in rule:
        rule = schema()["$defs"][rule["$ref"].removeprefix("#/$defs/")]
    _check_value(document, value, rule, path)
    if isinstance(value, dict):
        _check_keys(document, value, rule, path)
    elif isinstance(value, list):
        low, high = rule.get("minItems", 0), rule.get("maxItems", 10_000)
        if not low <= len(value) <= high:
            raise document.fail(
                path, f"{_shown(path)} has {len(value)} entries, but must have {low} to {high}."
            )
        for number, item in enumerate(value):
            _check(document, item, rule["items"], (*path, number))


def _check_value(document: Document, value: Any, rule: Mapping[str, Any], path: Path) -> None:
    def wrong(limit: str) -> ConfigurationError:
        return document.fail(path, f"{_shown(path)} is {value!r}, but must be {limit}.")

    if "enum" in rule:
        if value not in rule["enum"]:
            near = nearest(str(value), rule["enum"], limit=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise document.fail(path, f"{wrong(' or '.join(rule['enum'])).message.partition(': ')[2]}{hint}")
        return
    kinds = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
    if not any(_is_of(value, kind) for kind in kinds):
        raise wrong(
            f"like {rule['examples'][0]}" if "examples" in rule else " or ".join(_named(k) for k in kinds)
        )
    if "pattern" in rule and not re.fullmatch(rule["pattern"], str(value)):
        raise wrong(f"like {rule['examples'][0]}")
    low, high = rule.get("minimum"), rule.get("maximum")
    if (low is not None and value < low) or (high is not None and value > high):
        raise wrong(f"from {low} to {high}")


def _is_of(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _named(kind: str) -> str:
    return {"object": "a table of keys", "array": "a list", "integer": "a whole number"}.get(
        kind, f"a {kind}"
    )


def _check_keys(document: Document, value: dict[str, Any], rule: Mapping[str, Any], path: Path) -> None:
    known, others = rule.get("properties", {}), rule.get("additionalProperties")
    for key, item in value.items():
        if key in known:
            _check(document, item, known[key], (*path, key))
        elif isinstance(others, dict):
            _check(document, item, others, (*path, key))
        else:
            near = nearest(key, known)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}."
            raise document.fail((*path, key), f"unknown key {key!r} in {_shown(path)}. {hint}")
    for key in rule.get("required", ()):
        if key not in value:
            raise document.fail(path, f"{_shown(path)} lacks the key {key!r}.")


def _shown(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f"{'.' if text else ''}{part}"
    return text or "the file"
