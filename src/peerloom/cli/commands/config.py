"""`peerloom config`."""

from pathlib import Path

import click

from peerloom.cli.group import LazyGroup
from peerloom.cli.invocation import Invocation, output_option
from peerloom.cli.name_completion import PROFILE
from peerloom.cli.output import print_list, say
from peerloom.client.profiles import Profile, Profiles
from peerloom.kit.printable import Column

_HERE = "peerloom.cli.commands.config"
_COLUMNS = (
    Column("PROFILE", lambda profile: profile.name),
    Column("IN USE", lambda profile: "yes" if profile.is_in_use else "-"),
    Column("ADDRESS", lambda profile: profile.address),
    Column("YOU ARE", lambda profile: profile.who or "-"),
)


@click.group(
    cls=LazyGroup,
    table={
        "list": (f"{_HERE}:list_profiles", "All profiles, and which is in use."),
        "set": (f"{_HERE}:set_profile", "Keep a system under a name."),
        "use": (f"{_HERE}:use_profile", "Talk to that system from now on."),
        "remove": (f"{_HERE}:remove_profile", "Forget one."),
    },
)
def config() -> None:
    """Profiles: the systems that you work with, by name. `peerloom login --profile` makes one, too."""


@click.command("list")
@output_option
@click.pass_obj
def list_profiles(invocation: Invocation) -> None:
    """All profiles, and which is in use."""
    hint = "no profiles yet; make one with: peerloom config set NAME --address HOST:PORT"
    print_list(Profiles().list(), _COLUMNS, invocation.output, hint)


@click.command("set")
@click.argument("name")
@click.option("--address", metavar="HOST:PORT", required=True, help="The system's registry.")
@click.option(
    "--identity",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Who you are, for a system with a door; the file is copied.  [default: nobody]",
)
def set_profile(name: str, address: str, identity: Path | None) -> None:
    """Keep a system as NAME."""
    say(_told(Profiles().set(name, address, identity)))


@click.command("use")
@click.argument("name", type=PROFILE, required=False, default="")
@click.option("--none", "is_none", is_flag=True, help="Use no profile any more.")
def use_profile(name: str, is_none: bool) -> None:
    """Talk to the system NAME from now on, where neither a flag nor the environment says otherwise."""
    if bool(name) == is_none:
        raise click.UsageError("Give the name of a profile, or --none.")
    profiles = Profiles()
    profiles.use(name)
    say(f"in use: {_told(profiles.get(name))}" if name else "no profile is in use")


@click.command("remove")
@click.argument("name", type=PROFILE)
def remove_profile(name: str) -> None:
    """Forget NAME; its certificate ends by itself, or with `peerloom door revoke`."""
    Profiles().remove(name)
    say(f"forgot {name}")


def _told(profile: Profile) -> str:
    return f"{profile.name}, {profile.address}{f' as {profile.who}' if profile.who else ''}"
