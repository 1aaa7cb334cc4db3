"""What the flags shared by many commands say: where the system is, and in which form to answer."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from peerloom import AsyncClient, Client

Command = Callable[..., Any]
FORMATS = ("table", "json", "yaml")


@dataclass
class Invocation:
    """Filled by the flags as click reads them; handed to each command as its `obj`."""

    address: str = ""
    identity: str = ""
    profile: str = ""
    output: str = "table"

    def client(self) -> "Client":
        """A client of the system that the flags, the environment or the state folder name."""
        from peerloom import Client  # here, because it brings gRPC, and --help is quick without

        return Client(self.address or None, identity=self.identity, profile=self.profile)

    def patient_client(self) -> "AsyncClient":
        """One whose watches go on however long a service is away."""
        from peerloom import AsyncClient

        where = self.address or None
        return AsyncClient(where, identity=self.identity, profile=self.profile, patience_s=float("inf"))


def default_state() -> Path:
    """PEERLOOM_STATE, or ~/.peerloom."""
    from peerloom.client.address import state_folder  # here, because it brings gRPC

    return state_folder(os.environ)


def _keep(name: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def store(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        invocation = ctx.ensure_object(Invocation)
        if value:
            setattr(invocation, name, value)

    return store


def system_options(command: Command) -> Command:
    """Adds --address, --profile and --identity."""
    command = click.option(
        "--identity",
        metavar="FILE",
        expose_value=False,
        callback=_keep("identity"),
        help="Who you are, for a system with a door.  [default: PEERLOOM_IDENTITY, else the profile's, "
        "else `peerloom login`'s]",
    )(command)
    command = click.option(
        "--profile",
        metavar="NAME",
        expose_value=False,
        callback=_keep("profile"),
        help="The system's; see 'peerloom config'.  [default: PEERLOOM_PROFILE, else the one in use]",
    )(command)
    return click.option(
        "--address",
        metavar="HOST:PORT",
        expose_value=False,
        callback=_keep("address"),
        help="The registry.  [default: the profile's, else PEERLOOM_ADDRESS, else the profile in use, else "
        "the system that is up on PEERLOOM_STATE]",
    )(command)


def output_option(command: Command) -> Command:
    """Adds -o."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMATS),
        expose_value=False,
        callback=_keep("output"),
        help="Form of the answer.  [default: table]",
    )(command)


def listing_options(command: Command) -> Command:
    """Adds what every listing or showing command takes."""
    return system_options(output_option(command))
