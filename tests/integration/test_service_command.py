"""`peerloom service`: units are written, shown and removed; those of others stay.

systemd itself needn't run: what it is told is tried where a program takes its place.
"""

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conftest import StartService

from peerloom.cli import systemd
from peerloom.cli.main import cli
from peerloom.kit.service_manager import feed_watchdog, watchdog_interval_s

LIMIT_S = 30.0
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a user's units lie, on a machine where systemd doesn't run."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(systemd, "_RUNS_HERE", tmp_path / "nothing")
    return tmp_path / "config" / "systemd" / "user"


def service(*words: str) -> Result:
    return CliRunner().invoke(cli, ["service", *words])


def test_a_unit_is_written_shown_and_removed(units: Path) -> None:
    done = service("install", "trainer", "--user", "--unit", "second", "--listen", "127.0.0.1:7409")
    assert done.exit_code == 0, done.output
    path = units / "peerloom-second.service"
    assert f"written: {path}" in done.output
    assert "systemctl --user enable --now peerloom-second.service" in done.output
    assert "peerloom.cli trainer --listen 127.0.0.1:7409" in path.read_text()
    shown = service("show", "second", "--user")
    assert path.read_text() in shown.output
    assert service("remove", "second", "--user").exit_code == 0
    assert not path.exists()
    again = service("remove", "second", "--user")
    assert (again.exit_code, "There is no unit 'second'" in again.output) == (3, True)


def test_print_changes_nothing(units: Path) -> None:
    done = service("install", "registry", "--user", "--print")
    assert (done.exit_code, units.exists()) == (0, False)
    assert "ExecStart=" in done.output


def test_our_own_unit_is_written_anew_and_another_s_only_when_told(units: Path) -> None:
    path = units / "peerloom-dashboard.service"
    for port in ("8081", "8082"):
        done = service("install", "dashboard", "--user", "--listen", f"127.0.0.1:{port}")
        assert done.exit_code == 0, done.output
        assert port in path.read_text()
    path.write_text("[Service]\nExecStart=/bin/true\n")
    for words in (("install", "dashboard", "--user"), ("remove", "dashboard", "--user")):
        refused = service(*words)
        assert refused.exit_code == 2
        assert "didn't write it" in refused.output
        assert path.read_text() == "[Service]\nExecStart=/bin/true\n"
    assert service("install", "dashboard", "--user", "--replace").exit_code == 0
    assert "peerloom.cli dashboard" in path.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("trainer", "--lisen", "1"),
            "the trainer refuses its settings: unknown flag '--lisen'. Did you mean",
        ),
        (("agent", "--slots", "x"), "the agent refuses its settings: --slots is 'x'"),
        (("agent", "--join", "token"), "PEERLOOM_NODE_JOIN=... into the environment file"),
        (("registry", "--unit", "A b"), "must be 1 to 63 of a-z"),
        (("registry", "--as", "anna"), "your own runs everything as you"),
        (("dashboard", "--state", "/x"), "it keeps nothing"),
        (("node",), "'node' is not one of 'registry'"),
        (("dashboard", "--lsten", "x"), "No such option '--lsten'"),
    ],
)
def test_what_can_not_be_meant_is_refused_before_anything_is_written(
    units: Path, words: tuple[str, ...], said: str
) -> None:
    done = service("install", *words, "--user")
    assert (done.exit_code, said in done.output) == (2, True), done.output
    assert not units.exists()


def test_who_runs_it_has_to_be_somebody() -> None:
    done = service("install", "trainer", "--print", "--as", "nobody-at-all")
    assert (done.exit_code, "a user of this machine" in done.output) == (2, True), done.output
    done = service("install", "trainer", "--print", "--as", "root", "--state", "/data/trainer")
    assert "User=root" in done.output
    assert "ReadWritePaths=/data/trainer" in done.output


def test_a_folder_that_a_made_up_user_can_not_own_is_refused() -> None:
    done = service("install", "trainer", "--print", "--state", "/data/trainer")
    assert (done.exit_code, "--as USER" in done.output) == (2, True), done.output


def test_systemd_is_told_to_enable_and_to_restart(
    units: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program in systemctl's place notes what it is told; then it fails, and its words are passed on."""
    program, told = tmp_path / "bin" / "systemctl", tmp_path / "told"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {told}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(systemd, "_RUNS_HERE", tmp_path)
    done = service("install", "registry", "--user")
    assert done.exit_code == 0, done.output
    assert "journalctl --user -u peerloom-registry" in done.output
    assert service("remove", "registry", "--user").exit_code == 0
    name = "peerloom-registry.service"
    assert [line for line in told.read_text().splitlines() if line != "--version"] == [
        "--user daemon-reload",
        f"--user enable {name}",
        f"--user restart {name}",
        f"--user disable --now {name}",
        "--user daemon-reload",
    ]
    program.write_text('#!/bin/sh\ntest "$1" = --version || { echo "no bus" >&2; exit 1; }\n')
    failed = service("install", "registry", "--user")
    assert (failed.exit_code, "daemon-reload failed: no bus" in failed.output) == (2, True)


def test_a_service_says_when_it_is_ready_alive_and_about_to_end(
    start_service: StartService, tmp_path: Path
) -> None:
    """What systemd does: a socket by which it is told, and a watchdog that bites after 0.2 s."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(LIMIT_S)
        registry = start_service(
            "registry",
            "--state",
            str(tmp_path / "state"),
            NOTIFY_SOCKET=str(tmp_path / "notify"),
            WATCHDOG_USEC="200000",
        )
        said: list[str] = []
        while said.count("WATCHDOG=1") < 3 or "READY=1" not in said:
            said.append(manager.recv(100).decode())
        registry.process.send_signal(signal.SIGTERM)
        while said[-1] != "STOPPING=1":
            said.append(manager.recv(100).decode())
        assert registry.stop() == 0
    assert said.count("READY=1") == 1


async def test_nobody_is_told_where_nobody_asked() -> None:
    async with asyncio.timeout(LIMIT_S):
        feeding = asyncio.create_task(feed_watchdog(0.0))
        await asyncio.sleep(0)
        feeding.cancel()
    assert watchdog_interval_s({}, 7) == 0.0
    assert watchdog_interval_s({"WATCHDOG_USEC": "3000000"}, 7) == 1.5
    assert watchdog_interval_s({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}, 7) == 0.0
    assert watchdog_interval_s({"WATCHDOG_USEC": "soon"}, 7) == 0.0
