"""Measures the machine anew from time to time while nobody uses it, and tells the registry."""

import asyncio
import fcntl
import json
import math
import os
import random
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from peerloom.kit.clock import to_timestamp
from peerloom.kit.logs import get_logger
from peerloom.v1.common_pb2 import MachineSpeed

_log = get_logger()
LIMIT_S = 60.0
FIRST_MEASURING_S = 60.0
LOOK_S = 0.1
_MEASURED = ("matmul_gflops", "memory_bytes_per_s", "training_gflops")


@dataclass(frozen=True)
class Measuring:
    """How: the child's `command` prints a JSON object of speeds; `is_idle` says whether the machine may be
    used now; `tell` hears of each result. `interval_s` 0: never. `chance` gives numbers from 0 to 1.
    """

    command: Sequence[str]
    interval_s: float
    is_idle: Callable[[], bool]
    heartbeat_s: Callable[[], float]
    wall_s: Callable[[], float]
    tell: Callable[[MachineSpeed], None]
    cores: Sequence[int] = ()
    chance: Callable[[], float] = random.random

    async def keep(
        self, first: MachineSpeed, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Measures, until cancelled; what it can't measure stays as in `first`."""
        speed, is_new = first, True
        while self.interval_s:
            await sleep(next_measuring_s(self.interval_s, is_new=is_new, chance=self.chance()))
            found = await self._measure_once(speed)
            # What was broken off for a job is tried again soon.
            is_new = found is None
            if found is not None:
                speed = found
                self.tell(speed)
        await asyncio.Event().wait()

    async def _measure_once(self, before: MachineSpeed) -> MachineSpeed | None:
        if not self.is_idle():
            return None
        with _alone() as is_alone:
            told = await self._run_child() if is_alone else None
        if told is None:
            return None
        speed = MachineSpeed(heartbeat_s=self.heartbeat_s(), measured_time=to_timestamp(self.wall_s()))
        speed.disk_bytes_per_s = before.disk_bytes_per_s
        for name in _MEASURED:
            setattr(speed, name, told[name])
        return speed

    async def _run_child(self) -> dict[str, float] | None:
        """What the child says; None when the machine was wanted meanwhile, or the child failed."""
        try:
            child = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            _log.warning("measuring_failed", reason=f"{self.command[0]} can't be started: {error}")
            return None
        if self.cores:
            with suppress(OSError):  # it has ended already, which is seen soon
                os.sched_setaffinity(child.pid, self.cores)
        talk = asyncio.create_task(child.communicate())
        try:
            async with asyncio.timeout(LIMIT_S):
                while not talk.done() and self.is_idle():
                    await asyncio.wait({talk}, timeout=LOOK_S)
        except TimeoutError:
            _log.warning("measuring_failed", reason=f"it took longer than {LIMIT_S:g} s")
        finally:
            if not talk.done():
                with suppress(ProcessLookupError):
                    child.kill()
            output, _ = await talk
        return parse_speeds(output.decode(errors="replace")) if child.returncode == 0 else None


def next_measuring_s(interval_s: float, *, is_new: bool, chance: float) -> float:
    """Seconds until the machine is measured again, spread by `chance` (0 to 1) so that neighbours take turns.

    `is_new`: there is no result yet, or the last try was broken off.
    """
    wait_s = min(interval_s, FIRST_MEASURING_S) if is_new else interval_s
    return wait_s * (0.5 + 0.5 * chance)


def parse_speeds(line: str) -> dict[str, float] | None:
    """The speeds in the child's line; None for anything but positive numbers by their names."""
    try:
        told = json.loads(line)
        speeds = {name: float(told[name]) for name in _MEASURED}
    except (ValueError, KeyError, TypeError):
        return None
    return speeds if all(0 < value < math.inf for value in speeds.values()) else None


@contextmanager
def _alone() -> Iterator[bool]:
    """Whether no other agent of this user measures now: two would each find half of the machine."""
    try:
        lock = _private_folder() / "measuring.lock"
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:  # there is no telling, so we measure
        yield True
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_alone = True
    except BlockingIOError:
        is_alone = False
    try:
        yield is_alone
    finally:
        os.close(descriptor)


def _private_folder() -> Path:
    """A folder that only this user can write to. Raises PermissionError when others have one of its name.

    Where all may write, a stranger could hold the lock for ever.
    """
    folder = Path(tempfile.gettempdir()) / f"peerloom-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} isn't this user's alone")
    return folder
