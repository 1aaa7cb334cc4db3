"""What a confined process can't do, each shown to be possible beside it without the sandbox."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from peerloom.sandbox.grant import Grant
from peerloom.sandbox.kernel_support import find_support
from peerloom.sandbox.process_environment import clean_environment

PROBE = Path(__file__).with_name("sandbox_probe.py")
LIMIT_S = 60.0
DENIED = (
    *("read_state", "list_state", "read_accounts", "write_outside", "open_rights", "mark"),
    *("read_other_job", "write_other_job", "read_environment", "signal", "trace", "slow_down"),
    *("send_datagram", "connect_unix", "listen_at_port", "leave_group", "namespace", "mount"),
    *("keyring", "io_uring", "page_faults", "become_root"),
)
NEEDED = (
    *("temporary", "folder", "data", "package", "library", "connect", "resolve", "interfaces", "pair"),
    *("thread", "program", "session", "own_signal", "random"),
)
Outcomes = dict[str, dict[str, str]]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whom a sandbox has to hold too"),
    pytest.mark.skipif(not find_support().is_whole, reason=f"needs a sandbox: {find_support().why_not}"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The agent's state, another job's folder and all else that somebody might be after."""
    root = tmp_path_factory.mktemp("places")
    places = {name: str(root / name) for name in ("state", "outside", "data", "packages")}
    places |= {"own": f"{root}/state/workers/own", "other_job": f"{root}/state/workers/other"}
    for folder in places.values():
        Path(folder).mkdir(parents=True)
    Path(places["state"], "node.json").write_text('{"node_key": "secret"}')
    Path(places["other_job"], "secret").write_text("secret")
    Path(places["data"], "samples").write_text("1 2 3")
    Path(places["packages"], "installed_package.py").write_text("")
    Path(places["outside"], "mine").touch(mode=0o600)
    # Nobody else may enter the folders that pytest makes, and this one is run by somebody else.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as public:
        Path(public).chmod(0o755)
        program = shutil.copy("/usr/bin/id", public)
        Path(program).chmod(0o4755)
        yield {**places, "public": public, "set_uid": program}


@pytest.fixture(scope="module")
def outcomes(places: dict[str, str]) -> tuple[Outcomes, Outcomes]:
    """What came of the same attempts, without a sandbox and in one."""
    path = f"{places['outside']}/socket"
    environment = {**os.environ, "PYTHONPATH": f"{places['packages']}:{os.environ.get('PYTHONPATH', '')}"}
    grant = Grant(places["own"], (places["data"], places["public"], str(PROBE)), places["state"])
    with (
        subprocess.Popen(["/bin/sleep", "1000"]) as agent,
        socket.socket(socket.AF_UNIX) as listener,
        socket.create_server(("127.0.0.1", 0)) as taken,
    ):
        listener.bind(path)
        listener.listen()
        port = taken.getsockname()[1]
        taken.close()
        targets = {**places, "agent_pid": agent.pid, "unix_socket": path, "port": port}
        command = [sys.executable, str(PROBE), json.dumps(targets)]
        confined = [sys.executable, "-m", "peerloom.sandbox", grant.to_json(), *command]
        try:
            free = _run(command, {**environment, "TMPDIR": places["outside"]})
            Path(places["outside"], "mine").chmod(0o600)
            return free, _run(confined, environment)
        finally:
            agent.kill()


def _run(command: list[str], environment: dict[str, str]) -> Outcomes:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    found: Outcomes = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("attempt", DENIED)
def test_a_confined_process_is_denied_what_any_other_may(
    outcomes: tuple[Outcomes, Outcomes], attempt: str
) -> None:
    free, confined = outcomes
    assert free["attempts"][attempt] == "done"
    assert confined["attempts"][attempt] == "PermissionError"


def test_every_attempt_is_judged(outcomes: tuple[Outcomes, Outcomes]) -> None:
    assert set(outcomes[0]["attempts"]) == set(DENIED)
    assert set(outcomes[0]["needs"]) == set(NEEDED)


@pytest.mark.parametrize("need", NEEDED)
def test_a_confined_process_has_what_trainings_need(outcomes: tuple[Outcomes, Outcomes], need: str) -> None:
    free, confined = outcomes
    assert (free["needs"][need], confined["needs"][need]) == ("done", "done")


def test_what_lies_beside_the_agents_folder_is_read_and_that_is_not(places: dict[str, str]) -> None:
    """An owner lends a folder that holds the agent's own one too: that is left out."""
    lent = str(Path(places["state"]).parent)
    grant = Grant(places["own"], (lent, str(PROBE)), places["state"])
    script = f"print(open('{places['data']}/samples').read()); open('{places['state']}/node.json')"
    command = [sys.executable, "-m", "peerloom.sandbox", grant.to_json(), sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout == "1 2 3\n"
    assert "PermissionError" in done.stderr


def test_with_a_gpu_it_names_its_threads_and_changes_nothing_else_of_the_kernels(
    places: dict[str, str],
) -> None:
    """CUDA says that an operating system's call failed where it can't."""
    script = (
        "import os\n"
        "def tried(path, text):\n"
        "    try: open(path, 'w').write(text)\n"
        "    except OSError as error: return type(error).__name__\n"
        "    return 'done'\n"
        "print(tried(f'/proc/self/task/{os.getpid()}/comm', 'cuda'))\n"
        "print(tried('/proc/sys/kernel/core_pattern', ''))\n"
        "print(tried(f'/proc/{os.getppid()}/oom_score_adj', ''))\n"
    )
    found = {}
    for on_gpu in (False, True):
        grant = Grant(places["own"], on_gpu=on_gpu)
        command = [sys.executable, "-m", "peerloom.sandbox", grant.to_json(), sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        found[on_gpu] = done.stdout.split()
    assert found[False] == ["PermissionError"] * 3
    assert found[True] == ["done", "PermissionError", "PermissionError"]


def test_limits_hold_for_files_and_memory(places: dict[str, str]) -> None:
    grant = Grant(places["own"], file_limit_bytes=1 << 20, memory_limit_bytes=256 << 20)
    script = (
        "import os, resource\n"
        "print(len(bytearray(64 << 20)))\n"
        "try: bytearray(1 << 30)\n"
        "except MemoryError: print('no memory')\n"
        "path = os.path.join(os.environ['TMPDIR'], 'large')\n"
        "try: open(path, 'wb', 0).write(bytes(2 << 20)); print(os.path.getsize(path))\n"
        "except OSError as error: print(error.strerror)\n"
        "print(resource.getrlimit(resource.RLIMIT_NPROC)[0] > 0)\n"
    )
    command = [sys.executable, "-m", "peerloom.sandbox", grant.to_json(), sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout.split("\n")[:3] == [str(64 << 20), "no memory", str(1 << 20)], done.stderr


def test_names_are_found_without_udp(places: dict[str, str], tmp_path: Path) -> None:
    server = Path(__file__).with_name("tcp_name_server.py")
    script = "import socket; print(socket.gethostbyname('trainer.example'))"
    confined = [sys.executable, "-m", "peerloom.sandbox", Grant(places["own"]).to_json()]
    command = ["unshare", "--mount", "--net", sys.executable, str(server), str(tmp_path / "resolv.conf")]
    environment = clean_environment(os.environ, is_confined=True)
    command += [*confined, sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.stdout, done.returncode) == ("192.0.2.7\n", 0), done.stderr
