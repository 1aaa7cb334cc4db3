"""`peerloom dashboard` says what is wrong before it listens."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from peerloom.cli.commands.up import show_dashboard
from peerloom.cli.main import cli


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["dashboard", "--listen", "127.0.0.1:0", *arguments])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "here"), "listen is 'here', but must be host:port"),
        (("--listen", "127.0.0.1:70000"), "up to 65535"),
        (("--base-path", "x y"), "base-path is 'x y', but must be like /peerloom"),
        (("--listen", "0.0.0.0:8080"), "is not loopback, and the dashboard has no login"),
        (("--testbed", "/nowhere"), "No testbed is up on /nowhere"),
        (
            ("--testbed", "/nowhere", "--address", "127.0.0.1:1"),
            "leave --address, --profile and --identity out",
        ),
    ],
)
def test_what_can_t_be_is_refused(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert words in done.output
    assert done.exit_code != 0


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_its_packages_it_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    done = run()
    assert "pip install 'peerloom[dashboard]'" in done.output
    assert done.exit_code != 0


def test_up_goes_on_without_the_dashboard_s_packages_and_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show_dashboard("http://127.0.0.1:8080/", Path("/state"))
    assert capsys.readouterr().out == "browser  http://127.0.0.1:8080/\n"
    show_dashboard("", Path("/state"))
    assert "the system runs without it. See /state/logs/dashboard.log" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    show_dashboard("", Path("/state"))
    assert capsys.readouterr().err == "To watch it in a browser: pip install 'peerloom[dashboard]'\n"
