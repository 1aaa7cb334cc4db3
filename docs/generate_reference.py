"""Writes cli.md, configuration.md, python.md, api.md and errors.md of docs/reference from code and protos.

python docs/generate_reference.py            writes them
python docs/generate_reference.py --check    ends with 1 and names those that aren't current
"""

import dataclasses
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import click
from errors_page import errors_page
from python_page import python_page

from peerloom.cli.main import cli
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.registry.config import RegistryConfig
from peerloom.services.selector.config import SelectorConfig
from peerloom.services.trainer.config import TrainerConfig

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
PROTOS = ROOT / "protos" / "peerloom" / "v1"
CONFIGS: dict[str, type[typing.Any]] = {
    "registry": RegistryConfig,
    "selector": SelectorConfig,
    "trainer": TrainerConfig,
    "node": NodeConfig,
}
HELP_WIDTH = 90
WIDE = {"max_content_width": HELP_WIDTH}
MADE = "<!-- Made by docs/generate_reference.py; change the code, then run it again. -->\n"
API_FILES = ("registry", "admission", "selector", "trainer", "node_agent", "artifact", "inference")


def main() -> int:
    """Writes or checks the pages; the exit status."""
    pages = {
        "cli.md": cli_page(),
        "configuration.md": configuration_page(),
        "python.md": f"{MADE}\n{python_page()}",
        "api.md": api_page(),
        "errors.md": f"{MADE}\n{errors_page()}",
    }
    paths = {REFERENCE / name: text for name, text in pages.items()}
    if "--check" not in sys.argv[1:]:
        for path, text in paths.items():
            path.write_text(text)
        return 0
    stale = [path.name for path, text in paths.items() if not path.exists() or path.read_text() != text]
    if stale:
        print(f"not current: {', '.join(stale)}. Run: python docs/generate_reference.py", file=sys.stderr)
    return 1 if stale else 0


def cli_page() -> str:
    """Every command's help, as it prints it."""
    parts = [
        MADE,
        "# The command `peerloom`\n",
        "Data goes to standard output, messages to standard error. Progress bars appear on a terminal only, "
        "and `NO_COLOR` is heeded. `registry`, `selector`, `trainer` and `node` become that service; their "
        "flags are in [configuration.md](configuration.md).\n",
    ]
    for context in commands("peerloom", cli, None):
        if context.info_name not in CONFIGS:
            level = "###" if context.command_path.count(" ") > 1 else "##"
            parts.append(f"{level} `{context.command_path}`\n\n```text\n{context.get_help()}\n```\n")
    return "\n".join(parts)


def commands(name: str, command: click.Command, above: click.Context | None) -> Iterator[click.Context]:
    """The contexts of a command and of all below it."""
    context = click.Context(
        command, above, name, terminal_width=HELP_WIDTH, **{**command.context_settings, **WIDE}
    )
    yield context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None, "it was listed"
            yield from commands(below, found, context)


def configuration_page() -> str:
    """Every knob of every service."""
    parts = [
        MADE,
        "# Configuration\n",
        "Each service takes its settings from, in growing strength: a TOML file (`--config FILE`, or the "
        "environment variable `PEERLOOM_CONFIG`) with a table named after the service, environment "
        "variables, and flags. So `listen` of the registry is `listen` below `[registry]` in a file, "
        "`PEERLOOM_REGISTRY_LISTEN`, and `--listen`. One file may hold the tables of all services. "
        "An unknown name is an error that suggests the right one.\n",
        "`peerloom SERVICE --help` prints the same. A service that can't start says why in one line on "
        "standard error and ends with 2. One that has started prints one line, `address=HOST:PORT`, on "
        "standard output; its logs go to standard error.\n",
    ]
    for name, config in CONFIGS.items():
        parts.append(f"## `peerloom {name}`, table `[{name}]`\n\n{config.__doc__}\n\n{knobs(config)}")
    return "\n".join(parts)


def knobs(config: type[typing.Any]) -> str:
    """A configuration's fields as a table."""
    hints = typing.get_type_hints(config)
    rows = [
        "| name | type | default | what it does, and what changing it costs |",
        "| --- | --- | --- | --- |",
    ]
    for field in dataclasses.fields(config):
        kind = getattr(hints[field.name], "__name__", str(hints[field.name])).replace(" | ", " or ")
        words = str(field.metadata["help"]).replace("|", "\\|")
        rows.append(f"| `{field.name}` | {kind} | {default_of(field)} | {words} |")
    return "\n".join(rows) + "\n"


def default_of(field: dataclasses.Field[typing.Any]) -> str:
    """A default as one would write it."""
    value = field.default
    if isinstance(value, tuple):
        value = ",".join("python" if part == sys.executable else part for part in value)
    if isinstance(value, bool):
        value = str(value).lower()
    return "empty" if value == "" else "unset" if value is None else f"`{value}`"


def api_page() -> str:
    """Every call of every service, with the first words of its comment."""
    parts = [
        MADE,
        "# The API\n",
        "The schema is the API: [protos/peerloom/v1](../../protos/peerloom/v1). Every message and field has "
        "a comment there with its unit and its range. All services also answer `grpc.health.v1.Health` and "
        "server reflection, so that `grpcurl` and `buf curl` need no file.\n",
        "- Lists come in pages: `page_size` 1 to 1000 (0: 100), and `page_token` from the page before.\n"
        "- A call that changes something and may be repeated carries a `request_id`: a repeat changes "
        "nothing twice.\n"
        "- A stream that shows a log (`WatchNodes`, `WatchJob`) can be resumed from a sequence number.\n"
        "- Every error carries a `google.rpc.ErrorInfo` with a [`reason`](errors.md) for programs; "
        "the message says what was wrong, where, and what to do next.\n"
        "- Messages are at most 4 MiB; artifacts travel in chunks.\n",
    ]
    for name in API_FILES:
        parts += [service_section(name, PROTOS / f"{name}.proto")]
    return "\n".join(parts)


def service_section(name: str, path: Path) -> str:
    """The services of one proto file."""
    lines, comment, out = path.read_text().splitlines(), list[str](), list[str]()
    for line in (line.strip() for line in lines):
        if line.startswith("//"):
            comment.append(line.removeprefix("//").strip())
            continue
        if found := re.match(r"service (\w+)", line):
            link = f"[{name}.proto](../../protos/peerloom/v1/{name}.proto)"
            out += [
                *([""] if out else []),
                f"## `peerloom.v1.{found[1]}`\n",
                f"{' '.join(comment)} In {link}.\n",
            ]
            out += ["| call | takes | gives | what it does |", "| --- | --- | --- | --- |"]
        elif found := re.match(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\)", line):
            takes, gives = (f"{'stream of ' if found[i] else ''}`{found[i + 1]}`" for i in (2, 4))
            out.append(f"| `{found[1]}` | {takes} | {gives} | {' '.join(comment)} |")
        comment = []
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.exit(main())
