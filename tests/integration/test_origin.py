"""A process that was forked by tests/origin is what it would have been if it had been executed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from origin.asking import EXEC, is_forked

PROBE = Path(__file__).with_name("process_probe.py")
LIMIT_S = 60.0


def run_probe(
    folder: Path, *words: str, is_executed: bool, **options: Any
) -> tuple[int, dict[str, Any], str]:
    """Its exit status, what it found of itself, and its standard error."""
    reads, writes = os.pipe()
    os.write(writes, b"through a pipe")
    os.close(writes)
    environment = {**os.environ, "PROBE_READS": str(reads), "PYTHONPATH": str(folder)}
    environment |= {EXEC: "1"} if is_executed else {}
    try:
        done = subprocess.run(
            [sys.executable, str(PROBE), *words],
            input="a line\n",
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            pass_fds=[reads],
            timeout=LIMIT_S,
            **options,
        )
    finally:
        os.close(reads)
    found = json.loads(done.stdout)
    found["environment"].pop(EXEC, None)
    return done.returncode, {**found, "reads": reads}, done.stderr


@pytest.mark.parametrize("leads_session", [False, True], ids=["in our session", "in its own"])
def test_it_finds_what_an_executed_process_finds(tmp_path: Path, leads_session: bool) -> None:
    executed, forked = [
        run_probe(tmp_path, "0", "a word", is_executed=each, start_new_session=leads_session)
        for each in (True, False)
    ]
    assert forked == executed
    status, found, _ = forked
    assert status == 0
    assert (found["parent"], found["inherited"], found["told"]) == (os.getpid(), "through a pipe", "a line\n")
    assert found["descriptors"] == [0, 1, 2, found["reads"]]
    assert found["leads"] == leads_session
    assert found["threads"] == [1, 1]


@pytest.mark.parametrize(
    ("way", "status"),
    [
        ("0", 0),
        ("3", 3),
        ("word", 1),
        ("raise", 1),
        ("interrupt", -signal.SIGINT),
        ("abort", -signal.SIGABRT),
    ],
)
def test_it_ends_as_an_executed_process_ends(tmp_path: Path, way: str, status: int) -> None:
    executed, forked = [run_probe(tmp_path, way, is_executed=each) for each in (True, False)]
    assert executed[0] == forked[0] == status
    assert executed[2].splitlines()[-1] == forked[2].splitlines()[-1]


def test_it_waits_for_its_threads(tmp_path: Path) -> None:
    written = tmp_path / "written"
    assert run_probe(tmp_path, "thread", str(written), is_executed=False)[0] == 0
    assert written.read_text() == "waited for"


def test_what_the_origin_does_not_know_is_executed(tmp_path: Path) -> None:
    environment = dict(os.environ)
    service = [sys.executable, "-m", "peerloom.services.registry"]
    assert is_forked(service, environment)
    assert is_forked([sys.executable, "-m", "peerloom.sandbox", "{}", *service], environment)
    assert not is_forked([sys.executable, "-m", "peerloom.sandbox", "{}", "/bin/true"], environment)
    assert not is_forked([sys.executable, "-c", "pass"], environment)
    assert not is_forked(["/bin/true"], environment)
    assert not is_forked(service, {**environment, "PYTHONHASHSEED": "1"})
    assert is_forked(service, {**environment, "PYTHONPATH": str(tmp_path)})
    (tmp_path / "sitecustomize.py").touch()
    assert not is_forked(service, {**environment, "PYTHONPATH": str(tmp_path)})


@pytest.mark.usefixtures("processes_are_executed")
def test_a_test_may_ask_for_an_interpreter_of_its_own(tmp_path: Path) -> None:
    _, found, _ = run_probe(tmp_path, "0", is_executed=False)
    assert is_forked([sys.executable, "-m", "peerloom.cli"], {}) is False
    assert found["parent"] == os.getpid()
