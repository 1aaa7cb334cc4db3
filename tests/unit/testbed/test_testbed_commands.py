"""`peerloom testbed`: what is wrong is told before anything is touched, with the documented exit codes."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from testbed_files import RIGHT, changed

from peerloom.cli.main import cli
from peerloom.testbed import names, testbed_record


@pytest.fixture(autouse=True)
def no_testbeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None but this test's own."""
    for module in (names, testbed_record):
        monkeypatch.setattr(module, "RUN_FOLDER", tmp_path / "run")


def testbed(*words: object) -> tuple[int, str]:
    """The exit code of `peerloom testbed WORDS`, and what it told."""
    done = CliRunner().invoke(cli, ["testbed", *map(str, words)])
    return done.exit_code, done.stderr


testbed.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test, by its name


@pytest.mark.parametrize("command", [("up",), ("up", "--detach"), ("run",)])
def test_a_wrong_file_is_refused_with_the_line(command: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(changed("slots", "slot"))
    rest = ("--", "nodes", "list") if command == ("run",) else ()
    status, told = testbed(*command, "--state", tmp_path / "state", file, *rest)
    assert status == 2
    assert f"{file}, line 9: unknown key 'slot' in hosts[1]. Did you mean slots" in told
    assert not (tmp_path / "state").exists()


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    status, told = testbed("up", "--state", tmp_path / "state", tmp_path / "nowhere.yaml")
    assert (status, "nowhere.yaml can't be read" in told) == (3, True)


@pytest.mark.parametrize(
    "words", [("down",), ("status",), ("show",), ("exec", "--", "true"), ("do", "leave", "host-1")]
)
def test_what_is_not_up_is_not_found(words: tuple[str, ...], tmp_path: Path) -> None:
    command, *rest = words
    status, told = testbed(command, "--state", tmp_path / "state", *rest)
    assert status == 3
    assert f"No testbed is up on {tmp_path / 'state'}" in told


def test_an_action_that_names_no_host_is_wrong_use(tmp_path: Path) -> None:
    status, told = testbed("do", "--state", tmp_path / "state", "leave")
    assert (status, "'leave' names no host" in told) == (2, True)


def test_a_picture_of_another_kind_is_refused_before_all_else(tmp_path: Path) -> None:
    status, told = testbed("show", "--state", tmp_path / "state", "--out", tmp_path / "picture.gif")
    assert (status, ".svg" in told) == (2, True)


def test_a_machine_that_lacks_something_is_told_each_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLOOM_NS3", str(tmp_path / "nowhere"))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    file = tmp_path / "right.yaml"
    file.write_text(RIGHT)
    status, told = testbed("up", "--state", tmp_path / "state", file)
    assert status == 2
    assert "nothing was made" in told
    assert "root: user 1000. Run it with sudo." in told
    assert "ns-3: no program peerloom-ns3. Build it: bash ns3/install.sh" in told
    assert not (tmp_path / "state").exists()
