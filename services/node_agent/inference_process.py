"""The node's inference server: a process of its own, started when first asked for, and again when it died."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil

from peerloom.errors import FailedPreconditionError
from peerloom.kit.clock import Clock
from peerloom.kit.logs import get_logger
from peerloom.kit.tasks import ShieldedWork
from peerloom.sandbox.cgroups import Cgroup
from peerloom.sandbox.grant import Grant
from peerloom.services.node_agent.config import NodeConfig
from peerloom.services.node_agent.owner.inventory import LentMachine

_log = get_logger()
ReachedAt = Callable[[int], Awaitable[str]]
START_LIMIT_S = 60.0
_PREFIX = b"address="


class InferenceServer(Protocol):
    """The server beside an agent, which starts when it is first asked for."""

    @property
    def port(self) -> int:
        """Where it listens; 0 while none runs."""

    async def start(self) -> tuple[str, float]:
        """Its address, and the seconds that starting it took (0: it ran)."""

    async def stop(self, grace_s: float) -> None:
        """Ends it; returns when it is gone."""


def inference_command(
    config: NodeConfig, machine: LentMachine, agent_address: str, folder: Path, grant: Grant | None
) -> list[str]:
    """Starts the inference server, which listens where the agent does, on a port of its own.

    With a `grant` it has no more than that.
    """
    program = [sys.executable, "-m", "peerloom.inference.server", f"--folder={folder}"]
    confined = [sys.executable, "-m", "peerloom.sandbox", grant.to_json()] if grant is not None else []
    flags = [f"--listen={config.listen.rpartition(':')[0]}:0", f"--agent={agent_address}"]
    flags.append(f"--registry={config.registry}")
    flags += [f"--memory-bytes={config.inference_memory_bytes}", f"--log-level={config.log_level}"]
    flags.append(f"--modules={','.join(config.inference_modules)}")
    flags += [f"--threads={machine.threads}", f"--accelerator={machine.accelerator_kind or 'cpu'}"]
    return [*confined, *program, *flags, f"--allow-plain={str(config.allow_plain).lower()}"]


class InferenceProcess:
    """At most one server, whose files lie in `folder` and that is started with `command` and `environment`.

    `reached_at` says where peers reach a port of this node. `certify` puts what it proves itself with
    below a folder, and says where ("": all is plain). `make_group` makes a cgroup for it.
    """

    def __init__(
        self,
        folder: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
        reached_at: ReachedAt,
        clock: Clock,
        certify: Callable[[Path], Awaitable[str]],
        make_group: Callable[[], Cgroup] | None = None,
    ) -> None:
        self._make_group = make_group
        self._group: Cgroup | None = None
        self._folder, self._command, self._environment = folder, command, environment
        self._certify = certify
        self._reached_at, self._clock = reached_at, clock
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0
        self._lifeline = -1
        self._work = ShieldedWork()
        self._starting: asyncio.Task[float] | None = None

    @property
    def port(self) -> int:
        """Where it listens; 0 while none runs."""
        return self._port if self._process is not None and self._process.returncode is None else 0

    async def start(self) -> tuple[str, float]:
        """Its address, and the seconds that starting it took (0: it ran).

        All who ask while it starts wait for the same start, which goes on when they give up. Raises
        FailedPreconditionError with the end of what it said when it can't start.
        """
        if self._starting is None or self._starting.done():
            self._starting = self._work.start(self._ensure_started())
        starting = self._starting
        try:
            start_s = await asyncio.shield(starting)
            return await self._reached_at(self._port), start_s
        except asyncio.CancelledError:
            if not starting.cancelled():
                raise
            raise FailedPreconditionError(
                "The inference server of this node was stopped while it started. Ask another node.",
                reason="INFERENCE_NOT_STARTED",
            ) from None

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, after `grace_s` seconds SIGKILL; returns when it is gone. One that starts is given up."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait({self._starting})
        await self._end(grace_s)

    async def _ensure_started(self) -> float:
        if self._process is not None and _runs(self._process):
            return 0.0
        self._close_lifeline()
        started_s = self._clock.monotonic_s()
        try:
            await self._launch()
        except BaseException:
            await self._end(0)
            raise
        start_s = self._clock.monotonic_s() - started_s
        assert self._process is not None
        _log.info("inference_started", port=self._port, pid=self._process.pid)
        return start_s

    async def _end(self, grace_s: float) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), grace_s)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        self._close_lifeline()
        await self._end_group()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _launch(self) -> None:
        # What a server that was killed left is of no use to the next.
        await self._end_group()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        await asyncio.to_thread(self._folder.mkdir, parents=True)
        identity = await self._certify(self._folder)
        # It ends when our end of the pipe does, also when we are killed.
        read_end, self._lifeline = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                f"--identity={identity}",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                env={**self._environment, "PEERLOOM_LIFELINE": str(read_end)},
                pass_fds=(read_end,),
                start_new_session=True,
            )
        finally:
            os.close(read_end)
        await self._enter_group(self._process.pid)
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), START_LIMIT_S)
        except TimeoutError:
            line = b""
        if not line.startswith(_PREFIX):
            await self._end(0)
            raise FailedPreconditionError(
                f"The inference server of this node didn't start (exit status {self._process.returncode}); "
                "the agent's log tells why.",
                reason="INFERENCE_NOT_STARTED",
            )
        self._port = int(line.decode().strip().rpartition(":")[2])

    async def _enter_group(self, pid: int) -> None:
        if self._make_group is None:
            return
        try:
            self._group = await asyncio.to_thread(self._make_group)
            await asyncio.to_thread(self._group.add, pid)
        except OSError as error:
            raise FailedPreconditionError(
                f"The inference server of this node gets no cgroup, and runs nowhere else: {error}.",
                reason="INFERENCE_NOT_STARTED",
            ) from error

    async def _end_group(self) -> None:
        group, self._group = self._group, None
        if group is not None and (why := await asyncio.to_thread(group.end)):
            _log.warning("inference_outgrown", reason=why)

    def _close_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def _runs(process: asyncio.subprocess.Process) -> bool:
    # The system knows of an end a little before the loop hears of it.
    if process.returncode is not None:
        return False
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE
    return False
