"""One worker process: forked when needed, told what to do on standard input, ended with its whole group.

A worker reads one line of JSON, its assignment, which may be written before the worker runs: the line waits
in the pipe. Standard input stays open as long as the agent lives: each further line of JSON asks the worker
to leave, or lets it stay after all. Its end tells the process to end.
"""

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress

from peerloom.sandbox.cgroups import Cgroup
from peerloom.worker.assignment import Assignment

# What a worker ended with is unknown when the process died that forked it; the worker itself lives on.
_UNSEEN = 255


class ForkedWorker:
    """A process of ours. `pid` is 0 until it runs, which sets `started`; `ended` is set when it is gone.

    It is told what to do once it is in its `group`, if it gets one, and with its end the group's comes.
    `why_ended` is what the group knows of its end, empty for nothing.
    """

    def __init__(
        self, stdin: asyncio.WriteTransport, status: asyncio.StreamReader, group: Cgroup | None = None
    ) -> None:
        self._stdin, self._group = stdin, group
        self._exit_code: int | None = None
        self._waiting_lines: list[bytes] = []
        self.pid = 0
        self.why_ended = ""
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self._follows = asyncio.create_task(self._follow(status))

    @classmethod
    async def open(cls, hand_over: Callable[[int, int], None], group: Cgroup | None = None) -> "ForkedWorker":
        """Keeps the other ends of the descriptors that `hand_over` gives away, and that must not raise.

        They are the new process's standard input, and the pipe in which come its id and its exit status.
        """
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        inputs, told = os.pipe()
        status, tells = os.pipe()
        hand_over(inputs, tells)
        os.close(inputs)
        os.close(tells)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(status, "rb", 0))
        stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(told, "wb", 0))
        return cls(stdin, reader, group)

    @property
    def exit_code(self) -> int | None:
        """Its exit status, negative for a signal, 255 for an unknown one; None while it runs."""
        return self._exit_code if self.ended.is_set() else None

    def assign(self, assignment: Assignment) -> None:
        """Tells it what to do; once only. A process that died meanwhile is seen by `ended`."""
        self._write(assignment.to_json().encode())

    def ask_to_leave(self, reason: str, grace_s: float) -> None:
        """Asks it to hand over at a step boundary and to end; it may wait so long for a replacement."""
        self._tell({"leave": reason, "grace_s": grace_s})

    def ask_to_stay(self) -> None:
        """Takes `ask_to_leave` back; one that has left already is gone."""
        self._tell({"stay": True})

    def _tell(self, message: dict[str, object]) -> None:
        if not self.ended.is_set():
            self._write(json.dumps(message).encode())

    def _write(self, line: bytes) -> None:
        if self._group is None or self.started.is_set():
            self._stdin.write(line + b"\n")
        else:
            self._waiting_lines.append(line + b"\n")

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, after `grace_s` seconds SIGKILL; returns when it is gone. One not there yet won't be."""
        if not self.pid:
            self._end(-signal.SIGTERM)
            return
        self._signal(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), grace_s)
        self._signal(signal.SIGKILL)
        await self.ended.wait()

    async def _follow(self, status: asyncio.StreamReader) -> None:
        exit_code = _UNSEEN
        try:
            if pid := _told(b"pid", line := await _line(status)):
                self.pid = pid
                await self._enter_group()
                self.started.set()
                if self.ended.is_set():  # stopped before it ran
                    self._kill_group()
                else:
                    self._stdin.writelines(self._waiting_lines)
                line = await _line(status)
            # Of one that could not become a worker this is all that is told: it has no id then.
            exit_code = _told(b"exit", line, _UNSEEN)
            if self.pid:
                self._kill_group()  # what it started itself must not outlive it
        finally:
            await self._end_group()
            self._end(exit_code)  # also when the status can't be read: a slot must not stay taken

    async def _enter_group(self) -> None:
        if self._group is None:
            return
        try:
            await asyncio.to_thread(self._group.add, self.pid)
        except OSError as error:  # nothing works here without its limits
            self.why_ended = f"it can't be put into its cgroup: {error}"
            self._kill_group()
            self._waiting_lines.clear()

    async def _end_group(self) -> None:
        if self._group is not None:
            why_ended = await asyncio.to_thread(self._group.end)
            self.why_ended = self.why_ended or why_ended

    def _end(self, exit_code: int) -> None:
        if not self.ended.is_set():
            self._exit_code = exit_code
            self._stdin.close()
            self.ended.set()

    def _signal(self, number: int) -> None:
        if not self.ended.is_set():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


async def _line(status: asyncio.StreamReader) -> bytes:
    """The next, or nothing where it is too long: a worker that is hostile can write there too."""
    try:
        return await status.readline()
    except ValueError:
        return b""


def _told(what: bytes, line: bytes, otherwise: int = 0) -> int:
    """The number that a line tells, as "exit -9"."""
    found = re.fullmatch(rb"%s (-?\d{1,9})\n" % what, line)
    return int(found[1]) if found else otherwise
