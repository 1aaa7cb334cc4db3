"""`peerloom service`: services as systemd's units."""

import click

from peerloom.cli.group import LazyGroup
from peerloom.cli.output import say
from peerloom.cli.systemd import (
    Place,
    check_may_write,
    check_settings,
    interpreter,
    split_state,
    systemd_version,
)
from peerloom.cli.unit_text import SERVICES, Unit, unit_text
from peerloom.kit.linux import check_linux

_HERE = "peerloom.cli.commands.systemd_units"
_FLAGS = {"ignore_unknown_options": True}
_UNIT = click.option("--unit", default="", metavar="NAME", help="What to call it.  [default: the service]")
_USER = click.option("--user", "is_of_user", is_flag=True, help="In your own systemd, without root.")


@click.group(
    cls=LazyGroup,
    table={
        "install": (f"{_HERE}:install", "Have systemd run a service, from now on and after each boot."),
        "remove": (f"{_HERE}:remove", "Stop one and remove its unit; its state folder stays."),
        "show": (f"{_HERE}:show", "Show a unit, and how its service is."),
    },
)
def service() -> None:
    """Services that systemd starts, keeps alive and ends: registry, selector, trainer, agent, dashboard."""


@click.command(context_settings=_FLAGS)
@click.argument("kind", metavar="SERVICE", type=click.Choice(SERVICES))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS OF THE SERVICE]...")
@_UNIT
@_USER
@click.option(
    "--as", "run_as", default="", metavar="USER", help="Who runs it.  [default: a user made for it]"
)
@click.option("--print", "only_prints", is_flag=True, help="Show the unit, and change nothing.")
@click.option("--replace", is_flag=True, help="Write over a unit that is there.")
def install(
    kind: str,
    arguments: tuple[str, ...],
    unit: str,
    is_of_user: bool,
    run_as: str,
    only_prints: bool,
    replace: bool,
) -> None:
    """Have systemd run a service, from now on and after each boot.

    What follows SERVICE are its own flags, as `peerloom SERVICE` takes them: peerloom service install
    trainer --listen 10.0.0.1:7402. Secrets, like a token to join with, belong in the environment file that
    the unit names. Without --state systemd keeps a folder for it.
    """
    check_linux("peerloom service")
    place = Place.of(unit or kind, is_of_user)
    flags, state = split_state(kind, arguments, is_of_user=is_of_user, run_as=run_as)
    check_settings(kind, flags)
    text = unit_text(
        Unit(
            kind,
            place.name,
            flags,
            interpreter(is_of_user, run_as),
            is_of_user,
            run_as,
            state,
            systemd_version(),
        )
    )
    if only_prints:
        say(text.rstrip("\n"))
        return
    check_may_write(place, text, replace=replace)
    place.write(text)
    say(f"written: {place.path}")
    for line in place.start():
        say(line)


@click.command()
@click.argument("name", metavar="NAME")
@_USER
@click.option("--replace", is_flag=True, help="Also one that `peerloom service install` didn't write.")
def remove(name: str, is_of_user: bool, replace: bool) -> None:
    """Stop a service and remove its unit; its state folder stays.

    NAME is what it was installed as: the service, or what --unit said.
    """
    place = Place.of(name, is_of_user)
    place.read()
    check_may_write(place, "", replace=replace)
    for line in place.stop():
        say(line)
    place.remove()
    say(f"removed: {place.path}; its state folder is still there")


@click.command()
@click.argument("name", metavar="NAME")
@_USER
def show(name: str, is_of_user: bool) -> None:
    """Show a unit, and how its service is.

    NAME is what it was installed as: the service, or what --unit said.
    """
    place = Place.of(name, is_of_user)
    text = place.read()
    say(f"# {place.path}\n{text}")
    say(place.state())
