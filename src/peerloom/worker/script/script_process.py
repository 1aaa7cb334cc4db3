"""One process of a script: started, waited for, and ended with all that it started."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

from peerloom.worker.script.ending import with_ending
from peerloom.worker.script.printed_lines import OutputForwarder

TERM_GRACE_S = 10.0  # for a script that stores what it has when it is told to end
OUTPUT_LIMIT_S = 5.0
_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """From now on this process is the parent of what its children leave behind, and can end it."""
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class ScriptProcess:
    """`python SCRIPT ARGUMENTS` with nothing on its standard input; it runs when this is made.

    `write` takes its output, marked by its `rank`. Raises OSError when it can't be started.
    """

    def __init__(
        self,
        script: Path,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        rank: int,
        write: Callable[[bytes], object],
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-u", str(script), *arguments],
            cwd=folder,
            env=with_ending(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._out = OutputForwarder(rank, "out", cast(BinaryIO, self._process.stdout), write)
        self._err = OutputForwarder(rank, "err", cast(BinaryIO, self._process.stderr), write)
        self._killer = threading.Timer(TERM_GRACE_S, self._kill)
        self._killer.daemon = True
        self._lock = threading.Lock()
        self._ending = False

    @property
    def last_lines(self) -> str:
        """The end of its standard error."""
        return self._err.last_lines

    def end(self) -> None:
        """Asks it to end, by SIGTERM, after 10 seconds by SIGKILL; returns at once. Any thread may call."""
        with self._lock:
            if self._ending:
                return
            self._ending = True
        self._process.terminate()
        self._killer.start()

    def wait(self) -> int:
        """Waits until it and all that it started are gone; its exit status, negative for a signal."""
        status = self._process.wait()
        self._killer.cancel()
        end_children()
        for forwarder in (self._out, self._err):
            forwarder.finish(OUTPUT_LIMIT_S)
        return status

    def _kill(self) -> None:
        self._process.kill()


def end_children() -> None:
    """Kills the children of this process, and those that they leave, until there is none."""
    while children := _children():
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            found += map(int, Path(f"/proc/self/task/{thread}/children").read_text().split())
    return found
