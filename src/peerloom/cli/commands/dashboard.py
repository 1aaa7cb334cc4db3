"""`peerloom dashboard`."""

import asyncio
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from peerloom.cli.extras import GET_DASHBOARD, has_dashboard
from peerloom.cli.invocation import Invocation, system_options
from peerloom.cli.output import say
from peerloom.cli.stopping import stop_signals
from peerloom.errors import FailedPreconditionError, InvalidArgumentError

_LISTEN = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:\s]+):(\d{1,5})")
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@click.command()
@click.option(
    "--listen", default="127.0.0.1:8080", metavar="HOST:PORT", show_default=True, help="Port 0: a free one."
)
@click.option(
    "--base-path", default="", metavar="/PATH", help="Below which path a proxy shows it.  [default: /]"
)
@click.option(
    "--host", "hosts", multiple=True, metavar="NAME", help="A name that browsers call it by; repeatable."
)
@click.option(
    "--allow-plain",
    is_flag=True,
    help="Listen beyond loopback: whoever reaches the port sees all, without a login.",
)
@click.option(
    "--actions",
    is_flag=True,
    help="Let who has the token that is printed drain nodes, cancel jobs and read logs.",
)
@click.option(
    "--testbed",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Watch the testbed that is up on this folder, from outside, with the counters of its network.",
)
@system_options
@click.pass_context
def dashboard(
    ctx: click.Context,
    listen: str,
    base_path: str,
    hosts: tuple[str, ...],
    allow_plain: bool,
    actions: bool,
    testbed: Path | None,
) -> None:
    """Watch the network and its jobs in a browser, until Ctrl-C.

    It shows, and asks models what they make of an input; it changes nothing, unless there are --actions. It
    needs no service at its start, shows what answers, and goes on when a service comes back.
    """
    host, port = _place(listen, allow_plain)
    base_path = base_path.rstrip("/")
    if not _BASE_PATH.fullmatch(base_path):
        raise InvalidArgumentError.of_field(
            "base-path", base_path, "like /peerloom, of letters, digits, -._~"
        )
    if not has_dashboard():
        raise FailedPreconditionError(
            f"The dashboard needs Starlette and uvicorn. Get them with: {GET_DASHBOARD}",
            reason="DASHBOARD_MISSING",
        )
    from peerloom.dashboard.window import listening_socket, serve_window

    asked = ctx.ensure_object(Invocation)
    token = secrets.token_urlsafe(16) if actions else ""
    with listening_socket(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listener.getsockname()[1]}{base_path}/"
        beside = _enter_testbed(asked, testbed.expanduser().absolute()) if testbed else None
        say(url)
        if token:
            say(f"token for actions: {token}")
        try:
            with stop_signals():
                names = {*_LOOPBACK, shown, *hosts}
                asyncio.run(
                    serve_window(asked.patient_client, listener, base_path, names, token, look_beside=beside)
                )
        except KeyboardInterrupt:
            say("stopped", err=True)


def _enter_testbed(asked: Invocation, state: Path) -> Callable[[], dict[str, Any]]:
    """Goes where the testbed's services are reached, the listener stays outside; what reads its counters."""
    from peerloom.cli.testbed_window import look_beside
    from peerloom.testbed import standing

    if asked.address or asked.profile or asked.identity:
        raise InvalidArgumentError(
            "--testbed says which system, and who asks: leave --address, --profile and --identity out."
        )
    plan = standing.plan_on(state)
    asked.address, identity = standing.enter(state, plan)
    asked.identity = str(identity or "")
    return look_beside(state, plan)


def _place(listen: str, allow_plain: bool) -> tuple[str, int]:
    """Host and port. Raises InvalidArgumentError, FailedPreconditionError for a place beyond loopback."""
    from peerloom.kit.listening import is_loopback  # here, as it brings gRPC, and --help is quick without

    found = _LISTEN.fullmatch(listen)
    if found is None or int(found[2]) > 65535:
        raise InvalidArgumentError.of_field("listen", listen, "host:port with a port up to 65535")
    if not is_loopback(listen) and not allow_plain:
        raise FailedPreconditionError(
            f"{listen} is not loopback, and the dashboard has no login: put a proxy with one before it, or "
            "give --allow-plain on a network whose every machine you trust.",
            reason="PLAIN_BEYOND_LOOPBACK",
        )
    return found[1].strip("[]"), int(found[2])
