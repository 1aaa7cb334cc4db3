"""Makes `subprocess`, and so asyncio's, ask the origin for processes of Peerloom instead of executing Python.

Whatever else is started, is started as ever; so is all while `EXEC` stands in the environment.
"""

import array
import json
import os
import platform
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

EXEC = "PEERLOOM_TEST_EXEC"
HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parent / "integration"
LENGTH_BYTES = 4
_CAN_FORK = (sys.platform, platform.machine()) == ("linux", "x86_64")  # as `program` knows no other's calls
SANDBOX = ["-m", "peerloom.sandbox"]  # a grant and a command line follow
_NAMESPACES = ("mnt", "net", "pid_for_children", "user")
_execute: Any = subprocess._fork_exec  # type: ignore[attr-defined]  # all ways to a new process end there


@dataclass(frozen=True)
class Ask:
    """A process that is wanted: its command line, place and environment, and which descriptors it gets.

    `descriptors` are its numbers for those that come with the message, standard ones first.
    """

    words: list[str]
    cwd: str
    environment: dict[str, str]
    descriptors: list[int]
    leads_session: bool

    def to_bytes(self) -> bytes:
        """As JSON, behind its length."""
        text = json.dumps(asdict(self)).encode()
        return len(text).to_bytes(LENGTH_BYTES, "big") + text

    @classmethod
    def from_bytes(cls, text: bytes) -> "Ask":
        """From the JSON alone."""
        return cls(**json.loads(text))


class Origin:
    """Our end of the socket to the origin: `connected`, None to start an origin when it is needed."""

    def __init__(self, connected: socket.socket | None = None) -> None:
        self._socket, self._lock = connected, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def fork(self, ask: Ask, descriptors: list[int]) -> int:
        """The id of the new process, which is our child. Raises ConnectionError when the origin is gone."""
        with self._lock:
            asks = self._socket = self._socket or self._start()
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
            message = ask.to_bytes()
            sent = asks.sendmsg([message], [rights])
            asks.sendall(message[sent:])
            if not (answer := asks.recv(LENGTH_BYTES, socket.MSG_WAITALL)):
                raise ConnectionError("The tests' origin of processes has ended; its traceback stands above.")
            return int.from_bytes(answer, "big")

    def close(self) -> None:
        """Ends the origin; what it forked lives on."""
        with self._lock:
            if self._socket is not None:
                # What a test forked by itself and forgot has our end too, and closes it with its own end.
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
                self._socket.close()
            if self._process is not None:
                self._process.wait()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        room = "-" * 4000  # for the command lines of those it forks
        # Threads of BLAS, started while it imports, would not be there after a fork.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", EXEC: "1"}
        environment["PYTHONPATH"] = str(HERE.parents[1] / "src")  # also where Python has another checkout's
        with theirs:
            command = [sys.executable, str(HERE / "program.py"), str(theirs.fileno()), room]
            self._process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
        return ours


def install(origin: Origin) -> None:
    """From now on `subprocess` asks this origin for what it can give."""
    inherited = _inherited()

    def start(
        words: list[str | bytes],
        programs: Any,
        close_fds: bool,
        kept: tuple[int, ...],
        cwd: Any,
        environment: list[bytes] | None,
        *others: Any,
    ) -> int:
        stdin, _, _, stdout, _, stderr, _, error, _, leads_session, group, *privileges = others
        texts, variables = [os.fsdecode(word) for word in words], _variables(environment)
        # Group, groups, user, umask, and what is to run before the exec: nobody here asks for them.
        is_plain = group == -1 and all(each in (None, -1) for each in privileges[:5])
        if not (is_plain and is_forked(texts, variables) and inherited == _inherited()):
            return int(_execute(words, programs, close_fds, kept, cwd, environment, *others))
        standard = [ours if ours != -1 else number for number, ours in enumerate((stdin, stdout, stderr))]
        more = [number for number in kept if number != error]
        ask = Ask(texts, os.fsdecode(cwd or os.getcwd()), variables, [0, 1, 2, *more], leads_session)
        return origin.fork(ask, [*standard, *more])

    subprocess._fork_exec = start  # type: ignore[attr-defined]


def uninstall() -> None:
    """Starts all as ever."""
    subprocess._fork_exec = _execute  # type: ignore[attr-defined]


def is_forked(words: list[str], environment: dict[str, str]) -> bool:
    """Whether the origin can become this: a module of Peerloom, or a script beside the integration tests."""
    if not _CAN_FORK or EXEC in environment or EXEC in os.environ:
        return False
    if words[1:3] == SANDBOX:  # a script in it is a probe of the sandbox itself
        words = words[4:] if words[5:6] == ["-m"] else []
    if len(words) < 2 or words[0] != sys.executable or _for_python(environment) != _for_python(os.environ):
        return False
    if any(Path(folder, "sitecustomize.py").exists() for folder in _searched(environment)):
        return False
    if words[1] == "-m":
        return len(words) > 2 and words[2].startswith("peerloom.")
    return Path(words[1]).parent == SCRIPTS


def _inherited() -> tuple[object, ...]:
    """What a child has from the thread that starts it; the origin has it as it was in the beginning."""
    namespaces = [os.readlink(f"/proc/thread-self/ns/{name}") for name in _NAMESPACES]
    return (*namespaces, os.sched_getaffinity(0), resource.getrlimit(resource.RLIMIT_NOFILE))


def _searched(environment: Mapping[str, str]) -> list[str]:
    return [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]


def _for_python(environment: Mapping[str, str]) -> dict[str, str]:
    """What an interpreter reads at its start only, but for where it looks for modules."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "LD_")) and name != "PYTHONPATH"
    }


def _variables(environment: list[bytes] | None) -> dict[str, str]:
    if environment is None:
        return dict(os.environ)
    pairs = (os.fsdecode(each).partition("=") for each in environment)
    return {name: value for name, _, value in pairs}
