"""The SDK and the command line where Unix's own modules are missing, as on Windows.

A fresh interpreter hides them, and what the module `os` has on Unix only; msvcrt's lock is stood in for by
POSIX's. What is left has to import, to talk to a system, and to say clearly what needs Linux.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from client_system import System

from peerloom.v1 import artifact_pb2, registry_pb2

HIDDEN = """
import os, signal, sys, types
for name in ("fcntl", "pwd", "grp", "resource", "termios", "tty", "pty"):
    sys.modules[name] = None
windows = types.ModuleType("msvcrt")
windows.LK_NBLCK, windows.posix_lock = 2, os.lockf
windows.locking = lambda descriptor, mode, size: windows.posix_lock(descriptor, os.F_TLOCK, size)
# These use what is about to go.
import _pyio, asyncio, concurrent.futures, importlib.metadata, selectors, shutil, subprocess, tempfile, uuid
for name in (
    "pread", "pwrite", "posix_fallocate", "sendfile", "SEEK_DATA", "O_CLOEXEC", "O_DIRECTORY", "lockf",
    "geteuid", "getuid", "sched_getaffinity", "getloadavg", "fork", "killpg", "setsid",
):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "pthread_kill", "setitimer"):
    delattr(signal, name)
"""


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    """A system with one node."""
    with System(tmp_path / "store") as made:
        spec = registry_pb2.NodeSpec(name="anna", address="127.0.0.1:1", slots=2)
        made.registry.nodes["anna"] = registry_pb2.Node(
            node_id="node-anna", spec=spec, state=registry_pb2.NODE_STATE_ALIVE
        )
        yield made


def run_hidden(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDDEN + script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_hidden("from peerloom.cli.main import main\nsys.argv[0] = 'peerloom'\nmain()", *arguments)


def test_everything_that_a_user_imports_is_there() -> None:
    script = """
sys.modules["msvcrt"] = windows
import pkgutil
from importlib import import_module
import peerloom, peerloom.cli.commands
for name in peerloom.__all__:
    getattr(peerloom, name)
for room in ("client", "cli", "embedded", "inference.client", "artifacts"):
    package = import_module(f"peerloom.{room}")
    for found in pkgutil.walk_packages(package.__path__, f"peerloom.{room}."):
        if not found.name.endswith((".__main__", ".local_model")):
            import_module(found.name)
for name in ("testbed", "testbed.testbed_record", "experiments.live"):
    import_module(f"peerloom.{name}")
"""
    done = run_hidden(script)
    assert done.returncode == 0, done.stderr


def test_the_sdk_talks_to_a_system_and_fetches(system: System, tmp_path: Path) -> None:
    content = bytes(range(256)) * 20_000  # several chunks
    source = tmp_path / "source"
    source.write_bytes(content)
    kept = system.store.add_file(source, artifact_pb2.Artifact(name="thing"))
    script = """
sys.modules["msvcrt"] = windows
import peerloom
with peerloom.Client(sys.argv[1]) as client:
    print(client.nodes()[0].name, client.train("digits", requests=3, epochs=2).status().spec.epochs)
    print(client.artifacts.get(sys.argv[2], sys.argv[3]))
"""
    done = run_hidden(script, system.address, kept.digest, str(tmp_path / "copy"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["anna 2", str(tmp_path / "copy")]
    assert (tmp_path / "copy").read_bytes() == content


def test_two_fetches_to_one_place_keep_apart(tmp_path: Path) -> None:
    script = """
sys.modules["msvcrt"] = windows
from pathlib import Path
from peerloom.kit.files import open_for_update, try_lock
mine = open_for_update(Path(sys.argv[1]))
assert try_lock(mine)
other = f"import os; os.lseek(d := os.open({sys.argv[1]!r}, os.O_RDWR), 2**43, 0); os.lockf(d, os.F_TLOCK, 1)"
taken = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True)
sys.exit(0 if "BlockingIOError" in taken.stderr else f"not locked: {taken.stderr}")
"""
    done = run_hidden(script, str(tmp_path / "partial"))
    assert done.returncode == 0, done.stderr


def test_the_command_line_helps_and_asks(system: System) -> None:
    helped = run_command("--help")
    assert helped.returncode == 0, helped.stderr
    assert "Try it: peerloom demo" in helped.stdout
    for command in ("up", "train", "testbed", "artifacts"):
        assert run_command(command, "--help").returncode == 0
    listed = run_command("nodes", "list", "--address", system.address)
    assert listed.returncode == 0, listed.stderr
    assert "anna" in listed.stdout


@pytest.mark.parametrize("command", [["up"], ["demo"], ["node"], ["registry"]])
def test_what_needs_linux_says_so(command: list[str], tmp_path: Path) -> None:
    flags = ["--state", str(tmp_path / "state")] if command[0] in ("up", "demo") else []
    done = run_command(*command, *flags)
    assert done.returncode != 0
    assert "needs Linux" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "state").exists()
