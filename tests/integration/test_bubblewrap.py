"""A second layer around jobs that bring code: what isn't theirs isn't there, and nobody else pays for it."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from node_agent_parts import LIMIT_S, worker_command

from peerloom.errors import FailedPreconditionError
from peerloom.sandbox.bubblewrap import in_bubblewrap, why_no_bubblewrap
from peerloom.sandbox.grant import Grant
from peerloom.services.node_agent.workers.fork_client import ForkServerClient
from peerloom.services.node_agent.workers.worker_origins import WorkerOrigins
from peerloom.worker.assignment import Assignment, Work

WHY_NOT = why_no_bubblewrap()
needs_bubblewrap = pytest.mark.skipif(bool(WHY_NOT), reason=f"needs bubblewrap: {WHY_NOT}")
PROBE = """
import json, os, socket, sys
def outcome(attempt):
    try:
        attempt()
    except OSError as error:
        return type(error).__name__
    return "done"
places = json.loads(sys.argv[1])
def shown(folder):
    if not os.listdir(folder):
        raise FileNotFoundError(folder)
def change(path):
    with open(path, "a"):
        pass
print(json.dumps({
    "accounts": outcome(lambda: os.stat("/etc/shadow")),
    "state": outcome(lambda: os.stat(places["key"])),
    "outside": outcome(lambda: os.stat(places["outside"])),
    "beside": outcome(lambda: shown(places["beside"])),
    "shared memory": outcome(lambda: os.stat(places["shared"])),
    "kernel": outcome(lambda: change("/proc/sys/kernel/core_pattern")),
    "lent": outcome(lambda: open(places["lent"]).close()),
    "by its link": outcome(lambda: open(places["linked"]).close()),
    "own": outcome(lambda: change(places["own"])),
    "changed": outcome(lambda: change(places["lent"])),
    "temporary": outcome(lambda: change("/tmp/peerloom-probe")),
    "network": outcome(lambda: socket.create_connection(("127.0.0.1", places["port"])).close()),
    "rights": open("/proc/self/status").read().split("CapEff:")[1].split()[0].strip("0"),
}))
"""


@pytest.fixture
def places(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An agent's folders, one that its owner lends, by a link, and what isn't lent."""
    for name in ("state/workers", "state/logs", "data", "house"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "linked").symlink_to(tmp_path / "data")
    shared = Path("/dev/shm") / f"peerloom-{tmp_path.name}-{os.getpid()}"
    files = {"key": "state/node.json", "outside": "house/secret", "lent": "data/samples"}
    found = {name: str(tmp_path / path) for name, path in files.items()}
    for path in (*found.values(), shared):
        Path(path).write_text("1 2 3")
    more = {"beside": "house", "linked": "linked/samples", "own": "state/workers/mine"}
    yield {**found, **{name: str(tmp_path / path) for name, path in more.items()}, "shared": str(shared)}
    shared.unlink()


@needs_bubblewrap
def test_what_is_not_given_is_not_there(places: dict[str, str], tmp_path: Path) -> None:
    """By their own names, as Landlock alone would let them be looked up; and what is given still works."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told = json.dumps({**places, "port": listener.getsockname()[1]})
        command = [sys.executable, "-I", "-c", PROBE, told]
        state = tmp_path / "state"
        grant = Grant(str(state / "workers"), reads=(str(tmp_path / "linked"),), private=str(state))
        free = _outcomes(command)
        wrapped = _outcomes(in_bubblewrap(command, grant, [str(state / "logs")]))
    hidden = dict.fromkeys(("accounts", "state", "outside", "beside", "shared memory"), "FileNotFoundError")
    given = dict.fromkeys(("lent", "by its link", "own", "temporary", "network"), "done")
    assert wrapped == {**hidden, **given, "kernel": "OSError", "changed": "OSError", "rights": ""}
    assert {name for name, said in free.items() if said == "done"} >= set(hidden) | set(given)


@needs_bubblewrap
def test_with_a_gpu_what_it_starts_names_threads_too(tmp_path: Path) -> None:
    """As CUDA does; nothing beside the processes becomes writable."""
    (tmp_path / "own").mkdir()
    name = "import os; open(f'/proc/self/task/{os.getpid()}/comm', 'w').write('cuda')"
    script = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-I', '-c', {name!r}]))"
    change = "open('/proc/sys/kernel/core_pattern', 'a')"
    found = {}
    for tried, code in (("name", script), ("change", change)):
        for on_gpu in (False, True):
            grant = Grant(str(tmp_path / "own"), on_gpu=on_gpu)
            command = [sys.executable, "-m", "peerloom.sandbox", grant.to_json(), sys.executable, "-c", code]
            done = subprocess.run(in_bubblewrap(command, grant, []), capture_output=True, timeout=LIMIT_S)
            found[tried, on_gpu] = done.returncode
    assert found == {("name", False): 1, ("name", True): 0, ("change", False): 1, ("change", True): 1}


def _outcomes(command: list[str]) -> dict[str, str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@dataclass
class Origins:
    """What workers are forked from here, and the folders of an agent."""

    starter: WorkerOrigins
    state: Path

    async def namespace_of(self, name: str, *, brings_code: bool) -> str:
        """Starts such a worker, waits until it runs, and says which files it sees; then ends it."""
        worker = await self.starter.start(brings_code=brings_code)
        work = Work("127.0.0.1:9", "digits")
        log = str(self.state / "logs" / name)
        worker.assign(Assignment(name, "job-1", work, "127.0.0.1:9", 0, "cpu", 0, "lo", 1, log, "5" * 64))
        async with asyncio.timeout(LIMIT_S):
            await worker.started.wait()
        namespace = os.readlink(f"/proc/{worker.pid}/ns/mnt")
        await worker.stop(0)
        assert not psutil.pid_exists(worker.pid)
        return namespace


@needs_bubblewrap
async def test_only_jobs_with_code_are_forked_inside(tmp_path: Path) -> None:
    command = worker_command(tmp_path).split(",")
    for name in ("workers", "logs"):
        (tmp_path / "state" / name).mkdir(parents=True)
    state = tmp_path / "state"
    wrapped = in_bubblewrap(command, Grant(str(state / "workers"), private=str(state)), [str(state / "logs")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    starter = WorkerOrigins(ForkServerClient(command, environment), ForkServerClient(wrapped, environment))
    starter.want(True)
    keeping = asyncio.create_task(starter.keep())
    origins = Origins(starter, state)
    ours = os.readlink("/proc/self/ns/mnt")
    assert await origins.namespace_of("one", brings_code=False) == ours
    assert _wrappers(tmp_path) == []  # nobody has brought code yet

    inside = await origins.namespace_of("two", brings_code=True)
    assert inside != ours
    assert await origins.namespace_of("three", brings_code=False) == ours
    assert await origins.namespace_of("four", brings_code=True) == inside  # kept, as the other is

    keeping.cancel()
    await asyncio.wait([keeping])
    await starter.close()
    assert _wrappers(tmp_path) == []


def _wrappers(folder: Path) -> list[int]:
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            command = child.cmdline()
        except psutil.NoSuchProcess:
            continue
        found += (
            [child.pid] if "--unshare-ipc" in command and any(str(folder) in one for one in command) else []
        )
    return found


async def test_code_does_not_run_beside_the_layer_when_that_fails() -> None:
    """Where bubblewrap was found once and fails later, such a job isn't let in without it."""
    failing = ForkServerClient(["/no/such/bwrap"], {})
    starter = WorkerOrigins(ForkServerClient([sys.executable, "-c", ""], {}), failing)
    with pytest.raises(FailedPreconditionError, match="/no/such/bwrap"):
        await starter.start(brings_code=True)
    await starter.close()


def test_a_machine_without_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_no_bubblewrap() == "bwrap isn't installed (Debian: apt-get install bubblewrap)"
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho no namespaces here >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o700)
    assert why_no_bubblewrap() == f"{tmp_path}/bwrap fails: no namespaces here"
