"""Which ports of this machine a worker's code can have opened at a relay: its own, while it listens there."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peerloom.errors import PermissionDeniedError
from peerloom.kit.principal import Principal, Role
from peerloom.services.node_agent.tunnels.worker_ports import WorkerPorts
from peerloom.services.node_agent.workers.local_pool import PooledWorker

WORKER = Principal(Role.WORKER, "worker-1", "ada", "node-1", "job-1")
LISTEN = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
input()
"""


class Opened:
    """A way in that keeps what it was asked for."""

    def __init__(self) -> None:
        self.is_open: dict[int, Callable[[], bool]] = {}

    async def __call__(self, port: int, host: str, is_open: Callable[[], bool]) -> str:
        self.is_open[port] = is_open
        return f"relay:{port} to {host}"


@pytest.fixture
def worker() -> Any:
    """A worker that is this process."""
    handle: Any = type("Handle", (), {"pid": os.getpid()})()
    return PooledWorker("worker-1", "job-1", 0, handle, Path("log"), Path("folder"), "5" * 64)


@pytest.fixture
def opened() -> Opened:
    return Opened()


@pytest.fixture
def ports(worker: PooledWorker, opened: Opened) -> WorkerPorts:
    return WorkerPorts(opened, lambda: [worker], lambda: "node-1")


async def test_a_port_is_open_while_the_worker_runs_and_listens(
    ports: WorkerPorts, worker: PooledWorker, opened: Opened
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("0.0.0.0", 0)) as second:
        one, other = first.getsockname()[1], second.getsockname()[1]
        assert await ports.forward(WORKER, one) == f"relay:{one} to 127.0.0.1"
        assert opened.is_open[one]()
        first.close()
        assert await ports.forward(WORKER, other) == f"relay:{other} to 127.0.0.1"
        assert not opened.is_open[one]()
        assert opened.is_open[other]()
        worker.exit_code = 0
        assert not opened.is_open[other]()


@pytest.fixture
def foreign_port() -> Iterator[int]:
    """Of another process."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        yield int(other.stdout.readline())
        other.communicate("\n")


async def test_a_port_of_another_process_stays_closed(
    ports: WorkerPorts, opened: Opened, foreign_port: int
) -> None:
    with pytest.raises(PermissionDeniedError, match="have their own ports forwarded only"):
        await ports.forward(WORKER, foreign_port)
    assert opened.is_open == {}


@pytest.mark.parametrize(
    "caller",
    [
        None,
        Principal(Role.WORKER, "worker-1", "bob", "node-2", "job-1"),
        Principal(Role.WORKER, "worker-1", "ada", "node-1", "job-2"),
        Principal(Role.WORKER, "worker-2", "ada", "node-1", "job-1"),
    ],
)
async def test_nobody_but_the_worker_itself_asks_for_its_ports(
    ports: WorkerPorts, caller: Principal | None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(PermissionDeniedError) as refused:
        await ports.forward(caller, listener.getsockname()[1])
    assert refused.value.reason == "NOT_YOUR_PORT"
