"""One worker process: started fresh, told what to do on standard input, ended with its whole group.

The process prints `ready` once it has imported what takes long, then reads one line of JSON: its
assignment. The assignment may be written before: it waits in the pipe. Standard input stays open as long
as the agent lives: each further line of JSON asks the worker to leave, or lets it stay after all. Its end
tells the process to end.
"""

import asyncio
import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from peerloom.errors import FailedPreconditionError
from peerloom.worker.assignment import Assignment

_READY = b"ready\n"


class WorkerProcess:
    """A process of ours. `ready` is set when it said so, `ended` when it is gone."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self._tasks = (asyncio.create_task(self._read()), asyncio.create_task(self._wait()))

    @classmethod
    async def launch(
        cls, command: Sequence[str], environment: Mapping[str, str], cores: Sequence[int] = ()
    ) -> "WorkerProcess":
        """Starts the command on these `cores` (empty: all). Raises FailedPreconditionError if it can't."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, **environment},
                start_new_session=True,  # a Ctrl-C at the terminal is for the agent, which stops its workers
            )
        except OSError as error:
            raise FailedPreconditionError(
                f"The worker process {command[0]} can't be started: {error}.", reason="WORKER_NOT_STARTED"
            ) from error
        if cores:
            with suppress(OSError):  # it has ended already, which is seen soon
                os.sched_setaffinity(process.pid, cores)
        return cls(process)

    @property
    def exit_code(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.returncode if self.ended.is_set() else None

    def assign(self, assignment: Assignment) -> None:
        """Tells it what to do; once only. A process that died meanwhile is seen by `ended`."""
        assert self._process.stdin is not None
        self._process.stdin.write(assignment.to_json().encode() + b"\n")

    def ask_to_leave(self, reason: str, grace_s: float) -> None:
        """Asks it to hand over at a step boundary and to end; it may wait so long for a replacement."""
        self._tell({"leave": reason, "grace_s": grace_s})

    def ask_to_stay(self) -> None:
        """Takes `ask_to_leave` back; one that has left already is gone."""
        self._tell({"stay": True})

    def _tell(self, message: dict[str, object]) -> None:
        assert self._process.stdin is not None
        if not self.ended.is_set():
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, after `grace_s` seconds SIGKILL; returns when it is gone."""
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), grace_s)
        self._signal(signal.SIGKILL)
        await self.ended.wait()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        seen = b""
        while piece := await self._process.stdout.read(4096):
            seen = (seen + piece)[-len(_READY) - 4096 :]
            if _READY in seen:
                self.ready.set()

    async def _wait(self) -> None:
        await self._process.wait()
        with suppress(ProcessLookupError):  # what it started itself must not outlive it
            os.killpg(self.pid, signal.SIGKILL)
        self.ended.set()

    def _signal(self, number: int) -> None:
        if not self.ended.is_set():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)
