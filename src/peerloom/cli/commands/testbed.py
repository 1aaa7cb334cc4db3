"""`peerloom testbed`."""

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peerloom.cli.exits import INTERRUPTED
from peerloom.cli.invocation import Command, Invocation, default_state, output_option
from peerloom.cli.output import print_document, say
from peerloom.cli.stopping import stop_signals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peerloom.testbed import Plan, Testbed

_PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
_ACTIONS = ("leave", "join", "loss", "rate", "delay", "partition", "heal")


def _testbed_state() -> Path:
    return default_state() / "testbed"


def _state_option(command: Command) -> Command:
    return click.option(
        "--state",
        type=click.Path(file_okay=False, path_type=Path),
        default=_testbed_state,
        callback=lambda _, __, path: path.expanduser().absolute(),
        metavar="DIR",
        help="The testbed's folder: two folders, two testbeds.  [default: PEERLOOM_STATE/testbed]",
    )(command)


def _building_options(command: Command) -> Command:
    for option in (
        click.option(
            "--log-level", default="info", show_default=True, help="Of all services: debug, info or warning."
        ),
        click.option(
            "--pcap",
            type=click.Path(path_type=Path),
            metavar="PREFIX",
            help="Let ns-3 write what passes each node to PREFIX-...pcap.",
        ),
        click.option(
            "--netanim",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE.xml",
            help="Let ns-3 write an animation for NetAnim.",
        ),
        click.option(
            "--isolation", type=click.Choice(["namespace", "container"]), help="Instead of the file's."
        ),
        click.option("--backend", type=click.Choice(["ns3", "netem"]), help="Instead of the file's."),
        _state_option,
        click.argument("file", type=click.Path(dir_okay=False, path_type=Path)),
    ):
        command = option(command)
    return command


@click.group()
def testbed() -> None:
    """Run agents in network namespaces or containers, behind ns-3 or shaped Linux links.

    Needs root. docs/network.md tells what a FILE holds; examples/thesis.yaml is one.
    """


@testbed.command()
@_building_options
@click.option("--detach", is_flag=True, help="Return when all is up, and leave it running.")
def up(file: Path, state: Path, detach: bool, **choices: Any) -> None:
    """Build a testbed and keep it up until Ctrl-C, playing its churn script."""
    if detach:
        from peerloom.cli.testbed_background import start_detached

        with stop_signals():
            start_detached(file, state, choices)
        say(f"running in the background; stop it with: peerloom testbed down --state {state}", err=True)
        return
    with stop_signals(), _standing(file, state, choices) as running:
        say("Ctrl-C removes it all.", err=True)
        try:
            running.wait()
        except KeyboardInterrupt:
            say("removing ...", err=True)
    say("stopped; nothing is left", err=True)


@testbed.command(context_settings=_PASS_ON)
@_building_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_context
def run(ctx: click.Context, /, file: Path, state: Path, command: tuple[str, ...], **choices: Any) -> None:
    """Build a testbed, run one peerloom COMMAND on its control host, show what passed, remove it all.

    E.g. peerloom testbed run examples/thesis.yaml -- train digits --requests 3. STATE/network.json keeps the
    bytes of each link and the lag, and STATE/jobs those of each job. Ends as COMMAND did.
    """
    from peerloom.cli.testbed_report import print_traffic

    status = INTERRUPTED
    with stop_signals(), _standing(file, state, choices) as running:
        try:
            status = running.run(command)
            print_traffic(running.traffic())
        except KeyboardInterrupt:
            say("removing ...", err=True)
    say("stopped; nothing is left", err=True)
    ctx.exit(status)


@testbed.command(name="exec", context_settings=_PASS_ON)
@_state_option
@click.option("--host", default="control", show_default=True, help="Where.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_context
def execute(ctx: click.Context, state: Path, host: str, command: tuple[str, ...]) -> None:
    """Run any program on a host of the testbed that is up, e.g. a script that uses the SDK.

    E.g. peerloom testbed exec -- peerloom nodes list, or exec --host host-1 -- ping 10.77.0.1. The host is
    a network only: files are this machine's.
    """
    from peerloom.testbed import standing

    ctx.exit(standing.execute(state, command, host))


@testbed.command(name="do")
@_state_option
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("arguments", nargs=-1)
def act(state: Path, action: str, arguments: tuple[str, ...]) -> None:
    """Change the network that is up.

    \b
    do leave HOST ...           take hosts off the network
    do join HOST ...            bring them back
    do loss RATIO HOST ...      e.g. 0.05
    do rate RATE HOST ...       e.g. 10Mbps; of a LAN without hosts
    do delay TIME HOST ...      e.g. 20ms; of a LAN without hosts
    do partition A,B C,D ...    these sets don't hear each other; hosts in none hear all
    do heal                     end the partition
    """
    from peerloom.testbed import standing
    from peerloom.testbed.actions import action_of

    standing.act(state, action_of(action, arguments))


@testbed.command()
@_state_option
@output_option
@click.pass_context
def status(ctx: click.Context, state: Path) -> None:
    """Show hosts with the registry's state and the selector's belief, and what passed each link."""
    from peerloom.cli.testbed_report import plain_standing, print_standing
    from peerloom.testbed import standing

    found = standing.look(state)
    invocation = ctx.ensure_object(Invocation)
    if invocation.output != "table":
        print_document(plain_standing(found), invocation.output)
    else:
        print_standing(found)


@testbed.command()
@_state_option
def down(state: Path) -> None:
    """Stop the testbed on a state folder, and remove what killed testbeds left on this machine."""
    from peerloom.testbed import standing

    removed = standing.take_down(state)
    told = f"removed {removed} things that a killed testbed left" if removed else "stopped; nothing is left"
    say(told, err=True)


@testbed.command()
@_state_option
@click.option("--bytes", "of_bytes", is_flag=True, help="What each link carried over time, instead.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("testbed.svg"),
    show_default=True,
    metavar="FILE",
    help="FILE.svg or FILE.png.",
)
def show(state: Path, of_bytes: bool, out: Path) -> None:
    """Draw the testbed that is up: its network, and each host's state and belief."""
    from peerloom.experiments.pictures.canvas import canvas, check_ending, save
    from peerloom.testbed import pictures, standing

    check_ending(out)
    figure, (axis,) = canvas(size=(6.4, 4.0) if of_bytes else (7.0, 6.5))
    if of_bytes:
        pictures.draw_bytes(axis, standing.plan_on(state), standing.read_samples(state))
    else:
        found = standing.look(state)
        pictures.draw_topology(axis, found.plan, found.hosts, found.stats)
    say(save(figure, out))


@contextmanager
def _standing(file: Path, state: Path, choices: dict[str, Any]) -> "Iterator[Testbed]":
    """A testbed that is up and plays its script; Ctrl-C while it is built removes it and says so."""
    from peerloom.testbed import Testbed, load_plan
    from peerloom.testbed.playing import ChurnPlayer

    plan = load_plan(file, choices["backend"], choices["isolation"])
    _warn(plan)
    options: dict[str, Any] = {name: choices[name] for name in ("isolation", "log_level", "netanim", "pcap")}
    running = Testbed(plan, state, **options)
    say(f"building {plan.name}: {len(plan.hosts)} hosts over {plan.backend} ...", err=True)
    with running:
        from peerloom.cli.testbed_report import print_up

        print_up(running)
        player = ChurnPlayer(plan, running.apply, state / "events.jsonl", _tell)
        player.start()
        try:
            yield running
        finally:
            player.stop()


_tell: Callable[[str], None] = lambda line: say(line, err=True)  # noqa: E731  # a name for one line


def _warn(plan: "Plan") -> None:
    from peerloom.testbed.bounds import warnings_of

    for warning in warnings_of(plan):
        say(f"warning: {warning}", err=True)
