"""`peerloom nodes`."""

from collections.abc import Sequence

import click

from peerloom import Client, GpuLoad, MachineSpeed, Node, ScoreTerm, Session
from peerloom.cli.group import LazyGroup
from peerloom.cli.invocation import Invocation, listing_options
from peerloom.cli.name_completion import NODE
from peerloom.cli.output import print_document, print_fields, print_list, say, table_lines
from peerloom.cli.parameters import Pair, choice_of
from peerloom.cli.units import human_age, human_duration, human_share
from peerloom.client.types import NodeState
from peerloom.errors import NotFoundError, UnavailableError
from peerloom.kit.printable import Column
from peerloom.kit.quantity_texts import shown_bytes, shown_number

_SESSIONS_SHOWN = 10
_HERE = "peerloom.cli.commands.nodes"


def state_of(node: Node) -> str:
    """Its state, and whether it is draining."""
    return f"{node.state}, draining" if node.draining else node.state


def free_of(node: Node) -> str:
    """Free slots of all slots; of a node that is away nothing is free."""
    free = node.free_slots if node.state in ("alive", "suspect") else 0
    return f"{'?' if free is None else free}/{node.slots}"


COLUMNS = (
    Column("NODE", lambda node: node.name),
    Column("STATE", state_of),
    Column("FREE", free_of, right=True),
    Column("CPU", lambda node: human_share(node.load and node.load.cpu_use), right=True),
    Column("MEM", lambda node: human_share(node.load and node.load.memory_use), right=True),
    Column("GPU", lambda node: human_share(node.load and node.load.gpu_use), right=True),
    Column("DEVICE", lambda node: device_of(node)),
    Column("ONLINE", lambda node: human_duration(node.online_s) if node.online_s else "-", right=True),
    Column("ADDRESS", lambda node: f"{node.address} via {node.via}" if node.via else node.address),
)
_MEASURING_POLICY = "survival"
_SEEN_COLUMNS = (
    Column("TERM", lambda term: term.name),
    Column("VALUE", lambda term: f"{shown_number(term.value, digits=4)} {term.unit}"),
    Column("BECAUSE", lambda term: term.evidence),
)
_SESSION_COLUMNS = (
    Column("BEGAN", lambda session: human_age(session.start_time)),
    Column("LENGTH", lambda session: human_duration(session.online_s), right=True),
    Column("END", lambda session: end_of(session)),
)


def device_of(node: Node) -> str:
    """Its accelerators, e.g. "2 x NVIDIA H200"."""
    return ", ".join(f"{each.count} x {each.model or each.kind}" for each in node.accelerators) or "-"


def end_of(session: Session) -> str:
    """How a session ended."""
    if session.end_time is None:
        return "still open"
    how = "interrupted" if session.interrupted else "left"
    return f"{how}: {session.end_reason}" if session.end_reason else how


@click.group(
    cls=LazyGroup,
    table={
        "list": (f"{_HERE}:list_nodes", "All nodes, by name."),
        "show": (f"{_HERE}:show_node", "One node with its online periods."),
        "drain": (f"{_HERE}:drain_node", "Take a node out of service, or back in."),
        "remove": (f"{_HERE}:remove_node", "Forget a node that is gone."),
    },
)
def nodes() -> None:
    """The machines that lend themselves."""


@click.command("list")
@click.option("--state", "states", type=choice_of(NodeState), multiple=True, help="Only nodes in this state.")
@click.option("--label", "labels", type=Pair(), multiple=True, help="Only nodes that carry this label.")
@listing_options
@click.pass_obj
def list_nodes(invocation: Invocation, states: tuple[str, ...], labels: tuple[tuple[str, str], ...]) -> None:
    """All nodes, by name."""
    with invocation.client() as client:
        found = client.nodes(states=states, labels=dict(labels))
    chosen = " like that" if states or labels else ""
    hint = f"no nodes{chosen}; start one with: peerloom node --registry HOST:PORT --name NAME"
    print_list(found, COLUMNS, invocation.output, hint)


@click.command("show")
@click.argument("node", type=NODE)
@listing_options
@click.pass_obj
def show_node(invocation: Invocation, node: str) -> None:
    """One node, by name or id, with its online periods."""
    with invocation.client() as client:
        found, sessions = client.node(node), client.sessions(node)
        seen = _seen_by_others(client, found)
    if invocation.output != "table":
        print_document({"node": found, "seen": seen, "sessions": sessions}, invocation.output)
        return
    _print_node(found)
    _print_seen(seen)
    say()
    for line in table_lines(sessions[:_SESSIONS_SHOWN], _SESSION_COLUMNS):
        say(line)
    if len(sessions) > _SESSIONS_SHOWN:
        say(f"... and {len(sessions) - _SESSIONS_SHOWN} earlier ones; -o json has them all", err=True)


def _seen_by_others(client: Client, node: Node) -> list[ScoreTerm]:
    """What evidence says of it; nothing when the selector can't be asked, or hasn't met it yet."""
    try:
        return client.explain_belief(node.id, _MEASURING_POLICY).score_terms
    except (NotFoundError, UnavailableError):
        return []


def _print_seen(terms: Sequence[ScoreTerm]) -> None:
    if not terms:
        return
    say("\nAs seen by those who asked it for work, which is what the policy survival goes by:")
    for line in table_lines(terms, _SEEN_COLUMNS):
        say(line)


def _measured_of(speed: MachineSpeed | None) -> list[tuple[str, str]]:
    """What a node measured of itself; lines with nothing to say are left out by whoever prints them."""
    if speed is None:
        return []
    training, heartbeat_s = speed.training_gflops, speed.heartbeat_s
    return [
        (
            "measured",
            f"{human_age(speed.measured_time)}, by itself" if speed.measured_time else "at its start",
        ),
        ("matmul", f"{speed.matmul_gflops:,.1f} GFLOP/s a slot"),
        (
            "training",
            f"{training:,.1f} GFLOP/s a slot" if training else "not measured yet: it waits to be idle",
        ),
        ("memory", f"{shown_bytes(speed.memory_bytes_per_s)}/s"),
        ("disk", f"{shown_bytes(speed.disk_bytes_per_s)}/s"),
        ("heartbeat", f"answered in {1000 * heartbeat_s:,.1f} ms" if heartbeat_s else ""),
    ]


def _in_use(node: Node) -> list[tuple[str, str]]:
    """How busy its machine is; of one that is away nothing is to be known."""
    load = node.load
    if load is None:
        is_there = node.state in ("alive", "suspect")
        return [("load", "unknown: its agent hasn't told it, as older ones don't")] if is_there else []
    cores = f"{human_share(load.cpu_use)} of {load.cores:g}, {human_share(load.own_cpu_use)} by Peerloom"
    memory = _used_of(load.memory_used_bytes, load.memory_total_bytes)
    return [
        ("cores in use", cores),
        ("memory in use", memory),
        *((f"gpu {place} in use", _gpu_in_use(gpu)) for place, gpu in enumerate(load.gpus)),
    ]


def _gpu_in_use(gpu: GpuLoad) -> str:
    memory = f"{_used_of(gpu.memory_used_bytes, gpu.memory_total_bytes)} of memory"
    return memory if gpu.use is None else f"{human_share(gpu.use)}, {memory}"


def _used_of(used: int, total: int) -> str:
    return f"{shown_bytes(used)} of {shown_bytes(total)}"


def _print_node(node: Node) -> None:
    print_fields(
        [
            ("name", node.name),
            ("id", node.id),
            ("owner", node.owner),
            ("address", node.address),
            ("reached", f"through {node.via}" if node.via else ""),
            ("relay", "passes connections on to nodes behind NAT" if node.relay else ""),
            ("state", f"{state_of(node)}: {node.reason}" if node.reason else state_of(node)),
            ("not lent", node.withheld),
            ("slots", f"{free_of(node)} free"),
            *_in_use(node),
            ("device", device_of(node)),
            *_measured_of(node.speed),
            ("labels", ", ".join(f"{key}={value}" for key, value in node.labels.items())),
            ("online", human_duration(node.online_s) if node.online_s else ""),
            ("first seen", human_age(node.registered_time)),
            ("last seen", human_age(node.last_seen_time)),
            ("incarnation", str(node.incarnation)),
        ]
    )


@click.command("drain")
@click.argument("node", type=NODE)
@click.option("--undo", is_flag=True, help="Take the node back into service.")
@listing_options
@click.pass_obj
def drain_node(invocation: Invocation, node: str, undo: bool) -> None:
    """Give a node no new work; what runs there is handed over to others, and nothing is lost."""
    with invocation.client() as client:
        changed = client.drain(node, undo=undo)
    print_list([changed], COLUMNS, invocation.output, "")


@click.command("remove")
@click.argument("node", type=NODE)
@click.option("--force", is_flag=True, help="Also when it is there: its session is closed.")
@click.pass_obj
def remove_node(invocation: Invocation, node: str, force: bool) -> None:
    """Forget a node that is gone, with its online periods and its belief; its name is free again.

    One that still runs, and is removed by force, comes back as a new node: stop its agent first, or drain it.
    """
    with invocation.client() as client:
        removed = client.remove_node(node, force=force)
    say(f"forgot {removed.name} ({removed.id})")
