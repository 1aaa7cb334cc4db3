"""The two small programs inside the images: which node a container becomes, and the health check."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from peerloom.kit.server import Endpoint, Server

DEPLOY = Path(__file__).parents[2] / "deploy"
CLAIM = (
    "import sys; sys.path.insert(0, {folder!r})\n"
    "from pathlib import Path; from start import settle\n"
    "environment = {{}}; settle('node', environment)\n"
    "print(environment['PEERLOOM_NODE_STATE'], environment['PEERLOOM_NODE_NAME'], flush=True)\n"
    "sys.stdin.read()\n"
)


@contextmanager
def replica(volume: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process that has claimed a node's folder, as a container does, and holds it until it ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIM.format(folder=str(DEPLOY))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(volume)},
    )
    with process:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()


def test_replicas_of_one_volume_become_different_nodes(tmp_path: Path) -> None:
    with replica(tmp_path) as (_, first), replica(tmp_path) as (_, second):
        assert first == [str(tmp_path / "node-1"), "node-1"]
        assert second == [str(tmp_path / "node-2"), "node-2"]


def test_a_replacement_becomes_the_node_that_was_killed(tmp_path: Path) -> None:
    with replica(tmp_path) as (killed, _), replica(tmp_path):
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        with replica(tmp_path) as (_, replacement):
            assert replacement[1] == "node-1"


def test_the_claim_is_held_by_what_the_program_becomes(tmp_path: Path) -> None:
    """exec keeps the lock: a second claim from another process finds the first folder taken."""
    program = CLAIM.format(folder=str(DEPLOY)).replace(
        "sys.stdin.read()", "import os; os.execv('/bin/cat', ['cat'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.write("cat is there\n")
        process.stdin.flush()
        assert process.stdout.readline() == "cat is there\n"
        with replica(tmp_path) as (_, second):
            assert second[1] == "node-2"


def test_an_unknown_service_is_named(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, DEPLOY / "start.py", "nodes"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "error: say which service to start: registry, selector, trainer, node\n"


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, list[str], str]]:
    """A real server of ours whose probe fails while the list of reasons holds one."""
    reasons: list[str] = []

    async def probe() -> None:
        if reasons:
            raise OSError(reasons[0])

    async with Server(Endpoint("127.0.0.1:0"), ["peerloom.v1.RegistryService"]) as server:
        await server.start({"disk": probe})
        yield server, reasons, server.address


async def ask(port: str) -> tuple[int | None, str]:
    """The health check's exit status and what it said, run as the image runs it."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-IS", str(DEPLOY / "probe.py"), port, stderr=asyncio.subprocess.PIPE
    )
    _, said = await program.communicate()
    return program.returncode, said.decode().strip()


async def test_the_health_check_says_what_the_server_says(server: tuple[Server, list[str], str]) -> None:
    """SERVING is 0; NOT_SERVING is 1, as soon as the server's own probe has found it out."""
    _, reasons, address = server
    port = address.rpartition(":")[2]
    assert await ask(port) == (0, "")
    reasons.append("the disk is full")
    async with asyncio.timeout(20):
        while (answer := await ask(port)) == (0, ""):
            pass
    assert answer == (1, "it says that it can't serve now")


async def test_the_health_check_fails_without_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    status, said = await ask(str(port))
    assert status == 1
    assert said.startswith("it can't be reached")


async def test_the_health_check_fails_on_what_is_no_grpc() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(24)
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as other:
        status, _ = await ask(str(other.sockets[0].getsockname()[1]))
    assert status == 1
