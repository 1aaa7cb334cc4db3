"""The embedded system with real processes: it starts whole, mends itself, and never leaves anybody behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from peerloom import Client
from peerloom.embedded import Embedded
from peerloom.embedded.folder import StateFolder
from peerloom.errors import FailedPreconditionError, UnavailableError

END_LIMIT_S = 30.0
LIGHT = ("registry", "selector")


def wait_for_end(pids: Iterable[int]) -> None:
    """Returns once all are gone; fails when one is left."""
    processes = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
    _, left = psutil.wait_procs(processes, timeout=END_LIMIT_S)
    assert [process for process in left if process.status() != psutil.STATUS_ZOMBIE] == []


def wait_for_health(address: str) -> None:
    """Returns once the address answers a health check."""
    with closing(grpc.insecure_channel(address, [("grpc.max_reconnect_backoff_ms", 200)])) as channel:
        HealthStub(channel).Check(HealthCheckRequest(), timeout=END_LIMIT_S, wait_for_ready=True)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """`peerloom up` in a process of its own, once it has said that all is up."""
    command = [sys.executable, "-m", "peerloom.cli", "up", "--nodes", "1,1", "--state", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        for line in process.stdout:
            if line.startswith("address"):
                break
        else:
            pytest.fail(process.stderr.read())
        yield process
        process.kill()
        process.wait()
        assert StateFolder(tmp_path).wait_until_free(END_LIMIT_S)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody trains here, so no agent imports for seconds what workers need."""
    monkeypatch.setenv("PEERLOOM_NODE_KEEP_WARM", "false")


@pytest.mark.usefixtures("cold")
def test_a_system_is_whole_when_start_returns_and_gone_when_the_block_is_left(tmp_path: Path) -> None:
    with Embedded(tmp_path, (2, 0), services=LIGHT) as system:
        pids = system.pids
        with Client(system.address) as client:
            assert [(node.name, node.slots, node.state) for node in client.nodes()] == [
                ("node-1", 2, "alive"),
                ("node-2", 0, "alive"),
            ]
            assert {belief.name for belief in client.beliefs()} == {"node-1", "node-2"}
        note = json.loads((tmp_path / "system.json").read_text())
        assert (note["registry"], note["pid"]) == (system.address, os.getpid())
        assert set(note["services"]) == {"registry", "selector", "node-1", "node-2"}
    assert [pid for pid in pids.values() if psutil.pid_exists(pid)] == []
    assert not (tmp_path / "system.json").exists()
    assert StateFolder(tmp_path).owner() is None


@pytest.mark.usefixtures("cold")
def test_nodes_say_goodbye_so_that_a_stop_is_no_interruption(tmp_path: Path) -> None:
    with Embedded(tmp_path, (1,), services=("registry",)):
        pass
    with Embedded(tmp_path, (1,), services=("registry",)) as system, Client(system.address) as client:
        assert len(client.sessions("node-1")) == 2
        assert client.interruptions() == []


def test_a_folder_in_use_is_refused_with_the_pid_of_its_user(tmp_path: Path) -> None:
    with Embedded(tmp_path, (), services=("registry",)), pytest.raises(FailedPreconditionError) as caught:
        Embedded(tmp_path, (), services=("registry",)).start()
    assert f"in use by process {os.getpid()}" in caught.value.message


@pytest.mark.usefixtures("cold")
def test_a_killed_service_comes_back_at_its_address(tmp_path: Path) -> None:
    with Embedded(tmp_path, (1,), services=LIGHT) as system:
        before, addresses = system.pids, system.addresses
        os.kill(before["registry"], signal.SIGKILL)
        wait_for_end([before["registry"]])
        wait_for_health(addresses["registry"])
        assert system.addresses == addresses
        assert system.pids["registry"] != before["registry"]
        assert system.pids["selector"] == before["selector"]


@pytest.mark.timeout(240)
def test_a_service_that_keeps_failing_stops_the_system_and_names_its_log(tmp_path: Path) -> None:
    with Embedded(tmp_path, (), services=("registry",)) as system:
        (tmp_path / "registry" / "registry.sqlite").write_bytes(b"not a database" * 1000)
        for suffix in ("-wal", "-shm"):
            (tmp_path / "registry" / f"registry.sqlite{suffix}").unlink(missing_ok=True)
        os.kill(system.pids["registry"], signal.SIGKILL)
        with pytest.raises(UnavailableError) as caught:
            system.wait(3 * END_LIMIT_S)
    assert caught.value.message.startswith("registry keeps failing: it ended with status 2, for the 6th time")
    assert str(tmp_path / "logs" / "registry.log") in caught.value.message


def test_a_service_that_can_not_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "registry").write_text("a file where a folder should be")
    with pytest.raises(UnavailableError) as caught:
        Embedded(tmp_path, (), services=("registry",)).start()
    assert caught.value.message.startswith("registry did not come up: it ended with status 2. It says: ")
    assert StateFolder(tmp_path).owner() is None


def test_no_process_outlives_a_killed_supervisor(supervisor: "subprocess.Popen[str]", tmp_path: Path) -> None:
    children = [child.pid for child in psutil.Process(supervisor.pid).children(recursive=True)]
    assert len(children) >= 5
    supervisor.kill()
    wait_for_end(children)
    assert StateFolder(tmp_path).wait_until_free(END_LIMIT_S)


def test_a_new_system_may_follow_at_once_on_the_folder_of_a_killed_one(
    supervisor: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    supervisor.kill()
    supervisor.wait()
    with Embedded(tmp_path, (1, 1), services=LIGHT) as system, Client(system.address) as client:
        assert [node.state for node in client.nodes()] == ["alive", "alive"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_up_stops_in_order_on_a_signal(
    supervisor: "subprocess.Popen[str]", tmp_path: Path, number: signal.Signals
) -> None:
    children = [child.pid for child in psutil.Process(supervisor.pid).children(recursive=True)]
    supervisor.send_signal(number)
    assert supervisor.wait(END_LIMIT_S) == 0
    assert supervisor.stderr is not None
    assert supervisor.stderr.read().endswith("stopped; nothing is left running\n")
    wait_for_end(children)
    assert not (tmp_path / "system.json").exists()
