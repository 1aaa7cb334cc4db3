"""The inference server beside an agent starts once, whoever of those that asked for it still waits."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from peerloom.errors import FailedPreconditionError
from peerloom.kit.clock import SystemClock
from peerloom.services.node_agent.inference_process import InferenceProcess


async def plain(folder: Path) -> str:
    return ""


LIMIT_S = 60.0
# Says that it runs, waits until it may go on, then says where it serves.
SERVER = """#!/bin/sh
echo running > {begun}
read go < {gate}
echo address=127.0.0.1:4711
exec sleep 1000
"""


async def reached_at(port: int) -> str:
    return f"ada.example:{port}"


class Started:
    """An inference process whose program is a script that starts when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.begun, self.gate = folder / "begun", folder / "gate"
        for pipe in (self.begun, self.gate):
            os.mkfifo(pipe)
        script = folder / "server.sh"
        script.write_text(SERVER.format(begun=self.begun, gate=self.gate))
        script.chmod(0o755)
        command, environment = [str(script)], dict(os.environ)
        self.process = InferenceProcess(
            folder / "inference", command, environment, reached_at, SystemClock(), plain
        )

    async def begins(self) -> None:
        """Returns when the program runs."""
        await asyncio.to_thread(self.begun.read_text)

    async def let_go_on(self) -> None:
        """The program says where it serves."""
        await asyncio.to_thread(self.gate.write_text, "go\n")


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Started]:
    made = Started(tmp_path)
    async with asyncio.timeout(LIMIT_S):
        yield made
        await made.process.stop(0)


async def test_a_start_goes_on_when_its_asker_gives_up(started: Started) -> None:
    asker = asyncio.create_task(started.process.start())
    await started.begins()
    asker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asker
    following = asyncio.create_task(started.process.start())
    await started.let_go_on()
    address, _ = await following
    assert address == "ada.example:4711"
    assert await started.process.start() == ("ada.example:4711", 0.0), "it runs"


async def test_a_start_that_is_stopped_is_told_of_and_the_next_is_a_new_one(started: Started) -> None:
    asker = asyncio.create_task(started.process.start())
    await started.begins()
    await started.process.stop(0)
    with pytest.raises(FailedPreconditionError, match="stopped while it started"):
        await asker
    again = asyncio.create_task(started.process.start())
    await started.begins()
    await started.let_go_on()
    assert (await again)[0] == "ada.example:4711"
