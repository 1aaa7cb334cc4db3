"""`peerloom registry|selector|trainer|node`: become that service; its own flags and help apply."""

import os
import sys

import click

from peerloom.kit.linux import check_linux

_UNTOUCHED = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def _command(name: str, module: str) -> click.Command:
    @click.command(name, context_settings=_UNTOUCHED, add_help_option=False)
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def become(arguments: tuple[str, ...]) -> None:
        check_linux(f"peerloom {name}")
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, "-m", f"peerloom.services.{module}", *arguments])

    return become


registry = _command("registry", "registry")
selector = _command("selector", "selector")
trainer = _command("trainer", "trainer")
node = _command("node", "node_agent")
