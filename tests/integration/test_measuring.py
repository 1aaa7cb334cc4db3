"""An idle machine is measured anew by a child process, which gives way to work."""

import asyncio
import fcntl
import os
import sys
import tempfile
from pathlib import Path

import pytest

from peerloom.services.node_agent.owner.measuring import Measuring
from peerloom.v1.common_pb2 import MachineSpeed

CHILD = """
print('{"matmul_gflops": 8, "memory_bytes_per_s": 1e9, "training_gflops": 3.5}')
"""
ENDLESS = "import time\nwhile True: time.sleep(1)\n"
LIMIT_S = 60.0


async def no_wait(_: float) -> None:
    await asyncio.sleep(0)


def measuring(folder: Path, child: str, is_idle: object, told: asyncio.Queue[MachineSpeed]) -> Measuring:
    script = folder / "child.py"
    script.write_text(child)
    command = (sys.executable, str(script))
    return Measuring(command, 10.0, is_idle, lambda: 0.002, lambda: 1e9, told.put_nowait)  # type: ignore[arg-type]  # tests give functions


async def test_what_the_child_measured_is_told_with_the_heartbeats(tmp_path: Path) -> None:
    told: asyncio.Queue[MachineSpeed] = asyncio.Queue()
    first = MachineSpeed(matmul_gflops=1.0, disk_bytes_per_s=5e7)
    keeping = asyncio.create_task(measuring(tmp_path, CHILD, lambda: True, told).keep(first, no_wait))
    async with asyncio.timeout(LIMIT_S):
        speed = await told.get()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert (speed.matmul_gflops, speed.training_gflops, speed.memory_bytes_per_s) == (8.0, 3.5, 1e9)
    assert (speed.disk_bytes_per_s, speed.heartbeat_s, speed.measured_time.seconds) == (5e7, 0.002, 1e9)


@pytest.mark.parametrize("is_ours", [True, False], ids=["another agent of ours", "a stranger"])
async def test_only_another_agent_of_this_user_holds_the_measuring_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    """A lock in the shared folder could be held by anybody; so could one in a folder that others write to."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"peerloom-{os.getuid()}"
    folder.mkdir(mode=0o700)
    folder.chmod(0o700 if is_ours else 0o777)
    told: asyncio.Queue[MachineSpeed] = asyncio.Queue()
    looked, looks = asyncio.Event(), 0

    def is_idle() -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:  # two tries that didn't even start the child, which would have been looked after
            looked.set()
        return True

    with (
        (folder / "measuring.lock").open("w") as held,
        (tmp_path / "peerloom-measuring.lock").open("w") as shared,
    ):
        fcntl.flock(held, fcntl.LOCK_EX)
        fcntl.flock(shared, fcntl.LOCK_EX)
        keeping = asyncio.create_task(measuring(tmp_path, CHILD, is_idle, told).keep(MachineSpeed(), no_wait))
        async with asyncio.timeout(LIMIT_S):
            await (looked.wait() if is_ours else told.get())
        assert told.empty()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_a_job_that_comes_ends_the_measuring_and_it_is_tried_again(tmp_path: Path) -> None:
    """Idle at the first look, not at the second: an endless child must be gone by the third."""
    told: asyncio.Queue[MachineSpeed] = asyncio.Queue()
    looks, third = [True, False], asyncio.Event()

    def is_idle() -> bool:
        if looks:
            return looks.pop(0)
        third.set()
        return False

    keeping = asyncio.create_task(measuring(tmp_path, ENDLESS, is_idle, told).keep(MachineSpeed(), no_wait))
    async with asyncio.timeout(LIMIT_S):
        await third.wait()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert told.empty()


async def test_the_real_child_measures_this_machine() -> None:
    told: asyncio.Queue[MachineSpeed] = asyncio.Queue()
    command = (sys.executable, "-m", "peerloom.worker.speed", "cpu", "1")
    real = Measuring(command, 10.0, lambda: True, lambda: 0.0, lambda: 1e9, told.put_nowait)
    keeping = asyncio.create_task(real.keep(MachineSpeed(), no_wait))
    async with asyncio.timeout(LIMIT_S):
        speed = await told.get()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert speed.training_gflops > 0
    assert speed.matmul_gflops > 0
    assert speed.memory_bytes_per_s > 0
