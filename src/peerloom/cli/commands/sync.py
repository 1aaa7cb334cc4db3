"""`peerloom sync`."""

from typing import Any

import click

from peerloom.cli.group import LazyGroup
from peerloom.cli.invocation import Invocation, output_option
from peerloom.cli.output import Column, print_document, print_fields, say, table_lines
from peerloom.kit.codec_sizes import VALUE_BYTES
from peerloom.kit.sync_explained import explained
from peerloom.kit.sync_method import CHOICES, PRESETS, SyncMethod, parse_sync

_HERE = "peerloom.cli.commands.sync"
_PRESET_COLUMNS = (
    Column("PRESET", lambda row: row["preset"] + (" (default)" if row["is_default"] else "")),
    Column("METHOD", lambda row: row["method"]),
)
_CHOICE_COLUMNS = (
    Column("KEY", lambda row: row["key"]),
    Column("VALUE", lambda row: row["value"] + (" (default)" if row["is_default"] else "")),
    Column("WHAT IT DOES", lambda row: row["does"]),
)


@click.group(
    cls=LazyGroup,
    table={
        "list": (f"{_HERE}:list_sync", "The presets, and the choices of each key."),
        "explain": (f"{_HERE}:explain_sync", "What a method does, costs and guarantees."),
    },
)
def sync() -> None:
    """How a training's gradients become their sum in each step. METHOD is a preset or KEY=VALUE,… pairs."""


@click.command("list")
@output_option
@click.pass_obj
def list_sync(invocation: Invocation) -> None:
    """The presets, and the choices of each key; give a preset or KEY=VALUE,… to 'train --sync'."""
    presets = [
        {"preset": name, "method": str(method), "is_default": method == SyncMethod()}
        for name, method in PRESETS.items()
    ]
    choices = _choices()
    if invocation.output != "table":
        print_document({"presets": presets, "choices": choices}, invocation.output)
        return
    for line in (*table_lines(presets, _PRESET_COLUMNS), "", *table_lines(choices, _CHOICE_COLUMNS)):
        say(line)
    say("\nint8, int4, 1bit and topk need topology=direct, which they get where none is given.")


def _choices() -> list[dict[str, Any]]:
    defaults = SyncMethod()
    return [
        {"key": key, "value": value, "does": does, "is_default": getattr(defaults, key) == value}
        for key, values in CHOICES.items()
        for value, does in values.items()
    ]


@click.command("explain")
@click.argument("method")
@output_option
@click.pass_obj
def explain_sync(invocation: Invocation, method: str) -> None:
    """What a method does, its bytes a step for each parameter, and what it guarantees."""
    found = explained(parse_sync("METHOD", method))
    if invocation.output != "table":
        print_document(found, invocation.output)
        return
    size = f"{found.bytes_per_parameter:.3g} for {VALUE_BYTES}: {found.bytes_ratio:.3g} of codec=none"
    print_fields(
        [
            ("method", found.method),
            ("schedule", found.schedule),
            ("topology", found.topology),
            ("codec", found.codec),
            ("bytes a parameter", size),
            ("small messages", found.small_messages),
            ("sums", found.sums),
            ("ranks", found.ranks),
        ]
    )
