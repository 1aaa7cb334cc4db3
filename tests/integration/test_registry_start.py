"""How a registry starts: it says so by health and reflection, or says in one line why it can't."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

LIMIT_S = 60.0
pytestmark = pytest.mark.usefixtures("processes_are_executed")


async def test_health_and_reflection_answer(start_service: Any, tmp_path: Path) -> None:
    registry = start_service("registry", "--state", str(tmp_path))
    async with asyncio.timeout(LIMIT_S), aio.insecure_channel(registry.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        for service in ("", "peerloom.v1.RegistryService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        async for reply in reflection.ServerReflectionInfo(iter([ask])):
            names = [found.name for found in reply.list_services_response.service]
            assert "peerloom.v1.RegistryService" in names
            break


def refused_start(*arguments: str) -> tuple[int, str]:
    """Exit status and standard error of a registry that can't start."""
    command = [sys.executable, "-m", "peerloom.services.registry", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_an_unknown_flag_ends_with_status_2_and_a_suggestion() -> None:
    status, told = refused_start("--sate", "x")
    assert status == 2
    assert told.startswith("error: unknown flag '--sate'. Did you mean --state")
    assert told.count("\n") == 1


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        listen = f"127.0.0.1:{holder.getsockname()[1]}"
        status, told = refused_start("--listen", listen, "--state", str(tmp_path))
    assert status == 2
    assert f"error: can't listen on {listen}" in told.splitlines()[-1]


def test_a_state_folder_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, told = refused_start("--listen", "127.0.0.1:0", "--state", str(tmp_path / "file"))
    assert status == 2
    assert told.startswith("error: the state folder ")
    assert told.count("\n") == 1


def test_plain_text_beyond_loopback_is_refused(tmp_path: Path) -> None:
    status, told = refused_start("--listen", "0.0.0.0:0", "--state", str(tmp_path))
    assert (status, "--allow-plain" in told) == (2, True)
