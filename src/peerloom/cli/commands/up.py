"""`peerloom up`."""

import os
import subprocess
import sys
import time
from pathlib import Path

import click

from peerloom.cli.extras import GET_DASHBOARD, has_dashboard
from peerloom.cli.output import say, table_lines
from peerloom.cli.parameters import nodes_option, state_option
from peerloom.cli.stopping import stop_signals
from peerloom.kit.linux import check_linux
from peerloom.kit.printable import Column
from peerloom.kit.quantity_texts import plural

_DETACH_LIMIT_S = 120.0
_POLL_S = 0.05


@click.command()
@nodes_option
@state_option
@click.option("--detach", is_flag=True, help="Return when all is up, and leave it running.")
@click.option(
    "--log-level", default="info", show_default=True, help="Of all services: debug, info or warning."
)
@click.option(
    "--data-root",
    "data_roots",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Folder whose files jobs may name; may be given several times.",
)
@click.option("--metrics", is_flag=True, help="Serve each process's metrics to Prometheus, on loopback.")
@click.option(
    "--dashboard/--no-dashboard",
    default=True,
    help="Show it all in a browser, at http://127.0.0.1:8080/ or, where that is taken, a free port.  "
    "[default: where peerloom[dashboard] is installed]",
)
def up(
    slots: tuple[int, ...],
    state: Path,
    detach: bool,
    log_level: str,
    data_roots: tuple[Path, ...],
    metrics: bool,
    dashboard: bool,
) -> None:
    """Start registry, selector, trainer and some nodes as processes on this machine.

    Stops them all on Ctrl-C. Logs lie in DIR/logs.
    """
    check_linux("peerloom up")
    with stop_signals():
        if detach:
            _start_detached(slots, state, log_level, data_roots, metrics, dashboard)
        else:
            _run(slots, state, log_level, data_roots, metrics, dashboard)


def _run(
    slots: tuple[int, ...],
    state: Path,
    log_level: str,
    data_roots: tuple[Path, ...],
    metrics: bool,
    dashboard: bool,
) -> None:
    from peerloom.embedded import Embedded

    system = Embedded(
        state,
        slots,
        log_level=log_level,
        data_roots=data_roots,
        metrics=metrics,
        dashboard=dashboard and has_dashboard(),
    )
    say(f"starting 3 services and {plural(len(slots), 'node')} ...", err=True)
    with system:
        try:
            show_system(system.address, system.addresses, system.metrics, slots, state)
            if dashboard:
                show_dashboard(system.dashboard.url if system.dashboard else "", state)
            say("Ctrl-C stops it all.", err=True)
            system.wait()
        except KeyboardInterrupt:
            say("stopping ...", err=True)
    say("stopped; nothing is left running", err=True)


def show_system(
    address: str, addresses: dict[str, str], metrics: dict[str, str], slots: tuple[int, ...], state: Path
) -> None:
    """Prints what is up and how to reach it."""
    lent = {f"node-{number}": str(count) for number, count in enumerate(slots, start=1)}
    columns = [
        Column("NAME", lambda row: row[0]),
        Column("ADDRESS", lambda row: row[1]),
        Column("SLOTS", lambda row: lent.get(row[0], ""), right=True),
    ]
    if metrics:
        columns.append(Column("METRICS", lambda row: metrics.get(row[0], "")))
    for line in table_lines(addresses.items(), columns):
        say(line)
    say()
    say(f"state    {state.expanduser().absolute()}")
    say(f"address  {address}    (export PEERLOOM_ADDRESS={address})")


def show_dashboard(url: str, state: Path) -> None:
    """Where it is, or why there is none."""
    if url:
        say(f"browser  {url}")
    elif has_dashboard():
        log = state.expanduser().absolute() / "logs" / "dashboard.log"
        say(f"The dashboard didn't come up; the system runs without it. See {log}", err=True)
    else:
        say(f"To watch it in a browser: {GET_DASHBOARD}", err=True)


def _start_detached(
    slots: tuple[int, ...],
    state: Path,
    log_level: str,
    data_roots: tuple[Path, ...],
    metrics: bool,
    dashboard: bool,
) -> None:
    from peerloom.embedded.folder import StateFolder

    folder = StateFolder(state)
    os.close(folder.lock())  # tells now, in the foreground, that the folder is in use or can't be written
    command = [
        sys.executable,
        "-m",
        "peerloom.cli",
        "up",
        "--state",
        str(folder.path),
        "--log-level",
        log_level,
    ]
    command += ["--nodes", ",".join(str(count) for count in slots)]
    command += ["--metrics"] if metrics else []
    command += [] if dashboard else ["--no-dashboard"]
    command += [word for root in data_roots for word in ("--data-root", str(root))]
    log = folder.log_path("up")
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        _wait_until_up(folder.path, process, log)
    except BaseException:
        process.terminate()
        process.wait()
        raise
    note = folder.read_note()
    assert note is not None, "it was there a moment ago"
    show_system(note.registry, note.services, note.metrics, slots, state)
    if dashboard:
        show_dashboard(note.dashboard, state)
    say(f"running in the background; stop it with: peerloom down --state {folder.path}", err=True)


def _wait_until_up(state: Path, process: "subprocess.Popen[bytes]", log: Path) -> None:
    from peerloom.embedded.folder import StateFolder
    from peerloom.embedded.process import last_error
    from peerloom.errors import DeadlineError, UnavailableError

    folder, deadline_s = StateFolder(state), time.monotonic() + _DETACH_LIMIT_S
    while not ((note := folder.read_note()) and note.pid == process.pid):
        if process.poll() is not None:
            raise UnavailableError(last_error(log) or f"The system did not come up; {log} has more.")
        if time.monotonic() > deadline_s:
            raise DeadlineError(f"The system was not up within {_DETACH_LIMIT_S:.0f} s; {log} has more.")
        time.sleep(_POLL_S)
