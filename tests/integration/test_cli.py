"""The command `peerloom` as users run it: real processes, a real system, pipes, signals and exit codes."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from peerloom.embedded.folder import StateFolder
from peerloom.sandbox.bubblewrap import why_no_bubblewrap
from peerloom.sandbox.cgroups import why_no_cgroups
from peerloom.sandbox.kernel_support import find_support

LIMIT_S = 120.0
PEERLOOM = (sys.executable, "-m", "peerloom.cli")


@dataclass(frozen=True)
class Shell:
    """Runs `peerloom` with its state in a folder of the test's own."""

    state: Path

    def environment(self) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if name != "PEERLOOM_ADDRESS"}
        return {**plain, "PEERLOOM_STATE": str(self.state)}

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*PEERLOOM, *arguments],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        with self.start(*arguments) as process:
            stdout, stderr = process.communicate(timeout=LIMIT_S)
            return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    """A shell on an empty folder, with no system up."""
    return Shell(tmp_path)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell on the folder of a system of two nodes, started in the background."""
    shell = Shell(tmp_path_factory.mktemp("system"))
    up = shell("up", "--detach", "--nodes", "2,1")
    assert up.returncode == 0, up.stderr
    assert re.search(r"^node-1 +127\.0\.0\.1:\d+ +2$", up.stdout, re.MULTILINE)
    yield shell
    down = shell("down")
    assert (down.returncode, down.stdout) == (0, "")
    assert down.stderr.endswith("stopped; nothing is left running\n")
    assert shell("down").returncode == 3


def test_up_on_a_folder_in_use_names_the_process_that_uses_it(shell: Shell) -> None:
    for flags in ((), ("--detach",)):
        second = shell("up", *flags)
        assert second.returncode == 2
        assert f"is in use by process {StateFolder(shell.state).owner()}" in second.stderr


def test_the_system_on_the_state_folder_is_found_without_an_address(shell: Shell) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while True:  # who was busy for a moment says that it can't serve
        status = shell("status", "-o", "json")
        shown = json.loads(status.stdout)
        if status.returncode == 0 or time.monotonic() > deadline_s:
            break
    assert {service["name"]: service["healthy"] for service in shown["services"]} == {
        "registry": True,
        "selector": True,
        "trainer": True,
    }
    assert [node["name"] for node in shown["nodes"]] == ["node-1", "node-2"]
    assert (status.returncode, status.stderr) == (0, "")


@pytest.mark.parametrize(
    "command",
    [
        *("status", "nodes list", "nodes show node-1", "jobs list", "models list", "policies"),
        *("beliefs list", "beliefs show node-1", "beliefs history node-1"),
    ],
)
def test_every_listing_works_in_every_form(shell: Shell, command: str) -> None:
    for form in ("table", "json", "yaml"):
        answer = shell(*command.split(), "-o", form)
        assert answer.returncode == 0, answer.stderr
        assert "\x1b" not in answer.stdout
    json.loads(shell(*command.split(), "-o", "json").stdout)


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("nodes show node-11", 3, "node-1"),
        ("beliefs show nobody", 3, "nobody"),
        ("jobs show job-ffffffffffff", 3, "job-ffffffffffff"),
        ("train digits --policy thesiss", 3, "thesis"),
        ("train digits --epochs 0", 2, "epochs"),
        ("train digits --requests -1", 2, "request"),
        ("train digits --batch-size 2 --min-workers 3", 2, "min_workers"),
        ("nodes list --address 127.0.0.1:1", 4, "127.0.0.1:1"),
        ("nodes list --address nowhere", 2, "host:port"),
    ],
)
def test_bad_input_ends_with_one_line_that_names_it(shell: Shell, command: str, code: int, told: str) -> None:
    answer = shell(*command.split())
    assert (answer.returncode, answer.stdout) == (code, "")
    assert answer.stderr.startswith("error: ")
    assert answer.stderr.count("\n") == 1
    assert told in answer.stderr


def test_a_node_that_is_there_is_not_removed_unasked(shell: Shell) -> None:
    refused = shell("nodes", "remove", "node-2")
    assert refused.returncode == 2
    assert "node-2 has an open session. Stop its agent first" in refused.stderr
    assert "node-2" in shell("nodes", "list").stdout


def test_a_drained_node_says_so_until_it_is_undone(shell: Shell) -> None:
    assert "alive, draining" in shell("nodes", "drain", "node-2").stdout
    assert "draining" not in shell("nodes", "drain", "node-2", "--undo").stdout


def test_a_job_that_reaches_no_compute_ends_with_5(shell: Shell) -> None:
    answer = shell("train", "digits", "--label", "planet=mars")
    assert answer.returncode == 5
    assert "reached no compute" in answer.stderr


def test_a_job_is_trained_looked_at_and_its_model_fetched(shell: Shell, tmp_path: Path) -> None:
    trained = shell("train", "digits", "--epochs", "1", "--name", "short", "-o", "json")
    assert trained.returncode == 0, trained.stderr
    result = json.loads(trained.stdout)
    job = result["job_id"]
    assert "epoch 1: accuracy" in trained.stderr
    assert "state          succeeded" in shell("jobs", "show", job[:12]).stdout
    watched = [json.loads(line) for line in shell("jobs", "watch", job, "-o", "json").stdout.splitlines()]
    assert watched[-1]["state"] == "succeeded"
    assert [event["sequence"] for event in watched] == list(range(1, len(watched) + 1))
    fetched = shell("models", "get", job, str(tmp_path / "m.safetensors"))
    assert fetched.stdout == f"{tmp_path / 'm.safetensors'}\n"
    assert (tmp_path / "m.safetensors").stat().st_size == result["model"]["size_bytes"]


def test_ctrl_c_leaves_a_watched_job_running(shell: Shell) -> None:
    with shell.start("train", "digits", "--epochs", "1000") as process:
        assert process.stderr is not None
        submitted = process.stderr.readline()
        job = submitted.split()[0]
        process.send_signal(signal.SIGINT)
        status, said = process.wait(LIMIT_S), process.stderr.read()
        assert (status, f"peerloom jobs watch {job}" in said) == (130, True), said
    assert json.loads(shell("jobs", "show", job, "-o", "json").stdout)["end_time"] is None
    assert shell("jobs", "cancel", job).returncode == 0
    assert shell("jobs", "watch", job).returncode == 1


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    with shell.start("nodes", "list", "-o", "json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.wait(LIMIT_S)
        assert process.stderr.read() == ""


def test_down_without_a_system_says_so_and_ends_with_3(alone: Shell) -> None:
    answer = alone("down")
    assert answer.returncode == 3
    assert answer.stderr == f"error: No system is up on {alone.state}. Another folder is named by --state.\n"


def test_a_detached_start_that_fails_tells_the_reason(alone: Shell) -> None:
    (alone.state / "registry").write_text("a file where a folder should be")
    answer = alone("up", "--detach", "--nodes", "1")
    assert answer.returncode == 4
    assert answer.stderr.startswith("error: registry did not come up: ")
    assert StateFolder(alone.state).owner() is None


def test_a_service_gets_its_own_flags_untouched(alone: Shell) -> None:
    answer = alone("registry", "--help")
    assert answer.returncode == 0
    assert "--listen" in answer.stdout
    assert alone("registry", "--lisen", "x").returncode == 2


def test_doctor_always_ends_well(alone: Shell) -> None:
    answer = alone("doctor", "-o", "json")
    assert answer.returncode == 0
    found = {finding["name"]: finding for finding in json.loads(answer.stdout)}
    assert found["Python"]["ok"]
    why_not, no_groups = why_no_bubblewrap(), why_no_cgroups()
    support = dataclasses.replace(find_support(), bubblewrap=not why_not, cgroup=not no_groups)
    layers = f"{support}; no second layer: {why_not}" if why_not else str(support)
    layers += f"; no cgroups: {no_groups}" if no_groups else ""
    assert (found["sandbox"]["ok"], found["sandbox"]["found"]) == (support.is_whole, layers)
    assert all(finding["ok"] or finding["remedy"] for finding in found.values())


@pytest.mark.timeout(300)
def test_the_demo_runs_to_its_end_then_begins_with_its_beliefs_and_ctrl_c_leaves_nothing(
    alone: Shell,
) -> None:
    first = alone("demo", "--nodes", "2,1")
    assert first.returncode == 0, first.stdout
    assert "none yet: each node begins at 0" in first.stdout
    assert "each chosen: belief 0.000 is the highest of 2 candidates" in first.stdout
    assert first.stdout.count("chosen: ") == 1
    accuracy = re.search(r"test +accuracy (\S+)", first.stdout)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.95
    assert StateFolder(alone.state).owner() is None
    with alone.start("demo", "--nodes", "2,1") as second:
        assert second.stdout is not None
        told = []
        for line in second.stdout:
            told.append(line)
            if line.startswith("Training digits"):
                break
        assert "from earlier runs on this folder" in "".join(told)
        children = psutil.Process(second.pid).children(recursive=True)
        second.send_signal(signal.SIGINT)
        assert second.wait(LIMIT_S) == 130
    _, left = psutil.wait_procs(children, timeout=LIMIT_S)
    assert left == []
    assert StateFolder(alone.state).owner() is None
    assert alone("up", "--detach", "--nodes", "1").returncode == 0
    jobs = json.loads(alone("jobs", "list", "-o", "json").stdout)
    states = [job["state"] for job in jobs]
    assert states == ["cancelled", "succeeded"], "the next system must not take the demo's job up"
    assert alone("down").returncode == 0
