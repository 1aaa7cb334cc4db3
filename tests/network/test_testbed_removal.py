"""Nothing is left behind, however a testbed ends, and nothing of anybody else is touched."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from testbed_parts import file_of, require, wait_until

from peerloom.errors import FailedPreconditionError, NotFoundError
from peerloom.testbed import Testbed, lab, namespaces, parse_plan
from peerloom.testbed.names import Names
from peerloom.testbed.needs import PROGRAM_VARIABLE
from peerloom.testbed.note import read_note
from peerloom.testbed.testbed_record import is_up, read_entries

pytestmark = [pytest.mark.network, pytest.mark.timeout(180)]
Start = Callable[[Path, str], "subprocess.Popen[bytes]"]


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "peerloom.cli", "testbed", *map(str, words)]


def down(state: Path) -> "subprocess.CompletedProcess[str]":
    words = command("down", "--state", state)
    return subprocess.run(words, capture_output=True, text=True, timeout=90)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `peerloom testbed up` and returns when it is up; whatever the test leaves is removed."""
    started: list[tuple[Path, subprocess.Popen[bytes]]] = []

    def begin(state: Path, backend: str) -> "subprocess.Popen[bytes]":
        file = tmp_path / f"{state.name}.yaml"
        file.write_text(file_of(1, backend))
        with (tmp_path / f"{state.name}.log").open("wb") as log:
            process = subprocess.Popen(
                command("up", file, "--state", state), stdout=log, stderr=log, start_new_session=True
            )
        started.append((state, process))

        def up() -> bool:
            assert process.poll() is None, (tmp_path / f"{state.name}.log").read_text()
            with suppress(NotFoundError):
                return read_note(state).pid == process.pid
            return False

        wait_until(up, "the testbed is up", 60)
        return process

    yield begin
    for state, process in started:
        process.kill()
        process.wait()
        down(state)


def machines_links() -> set[str]:
    return {name for name in os.listdir("/sys/class/net") if not name.startswith("veth")}


def left_of(its: Names) -> dict[str, list[object]]:
    spaces = [path.name for path in namespaces.path_of("").glob(f"peerloom-{its.token}-*")]
    return {"namespaces": spaces, "folder": [its.run_folder] if its.run_folder.exists() else []}


def runs(process: psutil.Process) -> bool:
    """Whether it does anything still; one that nobody has waited for yet does not."""
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


NOTHING: dict[str, list[object]] = {"namespaces": [], "folder": []}


def test_sigkill_leaves_what_down_removes_and_another_testbed_stays_whole(
    start: Start, tmp_path: Path
) -> None:
    require()
    before = machines_links()
    killed, other = tmp_path / "killed", tmp_path / "other"
    its, others = Names.of_state(killed), Names.of_state(other)
    supervisor, bystander = start(killed, "ns3"), start(other, "netem")
    assert machines_links() == before, "all interfaces are in namespaces of their own"
    assert lab.interfaces(others.lab)

    processes = [psutil.Process(entry.pid) for entry in read_entries(its) if entry.kind == "process"]
    assert {entry.name for entry in read_entries(its)} >= {"ns3", "registry", "host-1", its.lab}
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    assert its.lab in left_of(its)["namespaces"]

    told = down(killed)
    assert (told.returncode, "killed testbed left" in told.stderr) == (0, True), told.stderr
    assert left_of(its) == NOTHING
    assert not [process for process in processes if runs(process)]
    assert is_up(others)
    assert namespaces.inhabitants(others.host("host-1"))

    bystander.send_signal(signal.SIGINT)
    assert bystander.wait(60) == 0
    assert left_of(others) == NOTHING
    assert machines_links() == before


def test_the_next_testbed_removes_what_a_killed_one_left(start: Start, tmp_path: Path) -> None:
    require(ns3=False)
    killed, following = tmp_path / "killed", tmp_path / "following"
    supervisor = start(killed, "netem")
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    start(following, "netem")
    assert left_of(Names.of_state(killed)) == NOTHING
    assert down(following).returncode == 0
    assert left_of(Names.of_state(following)) == NOTHING


def test_down_of_what_is_not_up_says_so(tmp_path: Path) -> None:
    require(ns3=False)
    told = down(tmp_path)
    assert told.returncode == 3
    assert f"No testbed is up on {tmp_path}" in told.stderr


def test_what_is_missing_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(ns3=False)
    monkeypatch.setenv(PROGRAM_VARIABLE, str(tmp_path / "nowhere"))
    testbed = Testbed(parse_plan("tested.yaml", file_of(1)), tmp_path / "state")
    with pytest.raises(FailedPreconditionError, match=r"ns3/install\.sh"):
        testbed.start()
    assert left_of(testbed.names) == NOTHING
    assert not (tmp_path / "state").exists()


def test_a_start_that_fails_half_way_removes_what_was_made(tmp_path: Path) -> None:
    require(ns3=False)
    text = file_of(1, "netem", settings={"trainer": {"no_such_knob": 1}})
    testbed = Testbed(parse_plan("tested.yaml", text), tmp_path / "state")
    with pytest.raises(Exception, match="no-such-knob"):
        testbed.start()
    assert left_of(testbed.names) == NOTHING


def test_a_second_testbed_on_one_state_folder_is_refused_and_the_first_goes_on(
    start: Start, tmp_path: Path
) -> None:
    require(ns3=False)
    state = tmp_path / "state"
    start(state, "netem")
    file = tmp_path / "second.yaml"
    file.write_text(file_of(1, "netem"))
    words = command("up", file, "--state", state)
    refused = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "is up already" in refused.stderr
    assert read_note(state).pid
    assert down(state).returncode == 0
