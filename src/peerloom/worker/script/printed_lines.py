"""What a script prints: line by line into the worker's log, no faster than the agent keeps that short."""

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import BinaryIO

from peerloom.kit.allowance import Bucket, Rate
from peerloom.kit.script_output import Stream, marked

LINE_BYTES = 8 * 1024  # a longer one is told as several
# The agent cuts a log each second: between two cuts no script adds more than this. Who prints faster waits.
PACE = Rate(most=1 << 20, per_s=1 << 19)
LAST_LINES, LAST_CHARACTERS = 20, 4096
_ENDS = re.compile(rb"\r?\n|\r")


class Pacer:
    """How long to pause after so many bytes, to keep to a rate: pure but for what it has seen."""

    def __init__(self, rate: Rate = PACE) -> None:
        self._rate = rate
        self._bucket: Bucket | None = None

    def pause_s(self, count: int, now_s: float) -> float:
        """Seconds to wait after `count` bytes at `now_s` (monotonic), before the next are taken."""
        left = self._rate.refilled(self._bucket, now_s).left - count
        self._bucket = Bucket(left, now_s)
        return max(0.0, -left / self._rate.per_s)


class LineSplitter:
    """Cuts a stream into lines: at their ends, at carriage returns (progress bars), and where one is long."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now."""
        whole = self._rest + data
        # A carriage return may be the first half of an end of line.
        held = b"\r" if whole.endswith(b"\r") else b""
        *lines, rest = _ENDS.split(whole.removesuffix(held) if held else whole)
        self._rest = rest + held
        cut = [part for line in lines for part in _cut(line)]
        if len(self._rest) > LINE_BYTES:
            cut, self._rest = [*cut, *_cut(self._rest)], b""
        return cut

    def end(self) -> list[bytes]:
        """What is left when the stream has ended."""
        rest, self._rest = self._rest.removesuffix(b"\r"), b""
        return _cut(rest) if rest else []


class OutputForwarder:
    """Reads a process's pipe to its end, in a thread of its own; `write` takes the marked lines.

    A process that prints faster than its pacer allows waits in its own write.
    """

    def __init__(self, rank: int, stream: Stream, pipe: BinaryIO, write: Callable[[bytes], object]) -> None:
        self._rank, self._stream, self._pipe, self._write = rank, stream, pipe, write
        self._last: deque[bytes] = deque(maxlen=LAST_LINES)
        self._pacer, self._hurry = Pacer(), threading.Event()
        self._thread = threading.Thread(target=self._forward, name=f"script-{stream}", daemon=True)
        self._thread.start()

    def finish(self, limit_s: float) -> None:
        """Waits until all that was printed is written, at most so long."""
        self._hurry.set()  # the pipe holds 64 KiB at most now
        self._thread.join(limit_s)

    @property
    def last_lines(self) -> str:
        """The last 20 lines, at most 4096 characters of their end."""
        return b"\n".join(self._last).decode(errors="replace")[-LAST_CHARACTERS:]

    def _forward(self) -> None:
        splitter = LineSplitter()
        with self._pipe:
            while data := os.read(self._pipe.fileno(), 1 << 16):
                self._tell(splitter.feed(data))
                self._hurry.wait(self._pacer.pause_s(len(data), time.monotonic()))
            self._tell(splitter.end())

    def _tell(self, lines: list[bytes]) -> None:
        self._last.extend(lines)
        if lines:
            self._write(b"".join(marked(self._rank, self._stream, line) for line in lines))


def _cut(line: bytes) -> list[bytes]:
    return [line[at : at + LINE_BYTES] for at in range(0, len(line), LINE_BYTES)] or [b""]
