"""`peerloom artifacts`."""

from pathlib import Path

import click

from peerloom.cli.group import LazyGroup
from peerloom.cli.invocation import Command, Invocation, listing_options, system_options
from peerloom.cli.name_completion import ARTIFACT, NODE
from peerloom.cli.output import print_document, print_fields, print_list, say
from peerloom.cli.parameters import choice_of
from peerloom.client.types.artifacts import ArtifactKind
from peerloom.kit.printable import Column
from peerloom.kit.quantity_texts import plural, shown_bytes

_HERE = "peerloom.cli.commands.artifacts"
_COLUMNS = (
    Column("ARTIFACT", lambda one: one.digest[:12]),
    Column("NAME", lambda one: one.name or "-"),
    Column("KIND", lambda one: one.kind.replace("_", " ")),
    Column("SIZE", lambda one: shown_bytes(one.size_bytes), right=True),
    Column("JOB", lambda one: one.job_id or "-"),
    Column("HELD BY", lambda one: ", ".join(one.holders)),
    Column("PINNED BY", lambda one: ", ".join(one.pinned_by) or "-"),
)
_HOLDER_COLUMNS = (
    Column("HOLDER", lambda one: one.name),
    Column("ADDRESS", lambda one: one.address),
)


def node_option(command: Command) -> Command:
    """Adds --node."""
    return click.option(
        "--node", type=NODE, default="", metavar="NAME", help="Only there; 'trainer' is one too."
    )(command)


@click.group(
    cls=LazyGroup,
    table={
        "put": (f"{_HERE}:put_artifact", "Give a file to a node, and copies to others."),
        "get": (f"{_HERE}:get_artifact", "Fetch one from all who hold it."),
        "list": (f"{_HERE}:list_artifacts", "All artifacts, and who keeps them."),
        "show": (f"{_HERE}:show_artifact", "One artifact with its chunks."),
        "where": (f"{_HERE}:where_artifact", "Who holds one, whole or in part."),
        "pin": (f"{_HERE}:pin_artifact", "Keep one, also when the cache is full."),
        "unpin": (f"{_HERE}:unpin_artifact", "Let one go when room is needed."),
        "rm": (f"{_HERE}:rm_artifact", "Remove one."),
    },
)
def artifacts() -> None:
    """Models, data sets and code on the nodes, each named by its SHA-256.

    DIGEST may be cut to a beginning that only one has, or be a model's NAME:VERSION.
    """


@click.command("put")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--kind", type=choice_of(ArtifactKind), default="data_set", show_default=True, help="What it is for."
)
@click.option("--name", default="", help="A name for people.  [default: the file's]")
@click.option("--copies", type=click.IntRange(1, 100), default=2, show_default=True, help="Nodes to keep it.")
@node_option
@system_options
@click.pass_obj
def put_artifact(invocation: Invocation, file: Path, kind: str, name: str, copies: int, node: str) -> None:
    """Give FILE, or a folder as a tar, to a node, and copies to others; prints its digest."""
    with invocation.client() as client:
        kept = client.artifacts.put(file, kind=kind, name=name, copies=copies, node=node)
    say(kept.digest)
    say(f"{shown_bytes(kept.size_bytes)}, kept by {', '.join(kept.holders)}", err=True)


@click.command("get")
@click.argument("digest", type=ARTIFACT)
@click.argument("path", type=click.Path(path_type=Path), required=False)
@system_options
@click.pass_obj
def get_artifact(invocation: Invocation, digest: str, path: Path | None) -> None:
    """Fetch DIGEST from all who hold it to PATH, checked; broken off, it goes on there next time.

    Without PATH it becomes a file named by the digest here. Prints where it lies.
    """
    with invocation.client() as client:
        say(str(client.artifacts.get(digest, path or Path())))


@click.command("list")
@node_option
@listing_options
@click.pass_obj
def list_artifacts(invocation: Invocation, node: str) -> None:
    """All artifacts, and who keeps them."""
    with invocation.client() as client:
        found = client.artifacts.list(node)
    print_list(
        found, _COLUMNS, invocation.output, "no artifacts yet; put one with: peerloom artifacts put FILE"
    )


@click.command("show")
@click.argument("digest", type=ARTIFACT)
@listing_options
@click.pass_obj
def show_artifact(invocation: Invocation, digest: str) -> None:
    """DIGEST with its chunks."""
    with invocation.client() as client:
        found = client.artifacts.show(digest)
    if invocation.output != "table":
        print_document(found, invocation.output)
        return
    one = found.artifact
    chunks = plural(len(found.chunk_digests), "chunk")
    print_fields(
        [
            ("digest", one.digest),
            ("name", one.name),
            ("kind", one.kind.replace("_", " ")),
            ("size", f"{one.size_bytes:,} bytes in {chunks} of {shown_bytes(found.chunk_bytes)}"),
            ("made by", " of ".join(part for part in (one.maker, one.job_id) if part)),
            ("held by", ", ".join(one.holders)),
            ("pinned by", ", ".join(one.pinned_by)),
            ("used by", ", ".join(one.used_by)),
        ]
    )


@click.command("where")
@click.argument("digest", type=ARTIFACT)
@listing_options
@click.pass_obj
def where_artifact(invocation: Invocation, digest: str) -> None:
    """Who holds DIGEST, whole or in part."""
    with invocation.client() as client:
        found = client.artifacts.where(digest)
    print_list(found, _HOLDER_COLUMNS, invocation.output, "nobody holds it")


@click.command("pin")
@click.argument("digest", type=ARTIFACT)
@node_option
@system_options
@click.pass_obj
def pin_artifact(invocation: Invocation, digest: str, node: str) -> None:
    """Keep DIGEST at all who hold it, also when their caches are full."""
    with invocation.client() as client:
        say(f"pinned by {', '.join(client.artifacts.pin(digest, node))}")


@click.command("unpin")
@click.argument("digest", type=ARTIFACT)
@node_option
@system_options
@click.pass_obj
def unpin_artifact(invocation: Invocation, digest: str, node: str) -> None:
    """Let DIGEST go when room is needed."""
    with invocation.client() as client:
        say(f"no longer pinned by {', '.join(client.artifacts.unpin(digest, node))}")


@click.command("rm")
@click.argument("digest", type=ARTIFACT)
@node_option
@system_options
@click.pass_obj
def rm_artifact(invocation: Invocation, digest: str, node: str) -> None:
    """Remove DIGEST everywhere; refused where it is pinned or a running job uses it."""
    with invocation.client() as client:
        say(f"removed from {', '.join(client.artifacts.rm(digest, node))}")
