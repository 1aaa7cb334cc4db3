"""A fork of the origin becomes the process that was asked for: what an exec would have given it."""

import atexit
import ctypes
import fcntl
import os
import runpy
import signal
import socket
import sys
import tempfile
import threading
import time
from typing import NoReturn

from origin.asking import SANDBOX, Ask, Origin, install
from peerloom.sandbox.confining import confine
from peerloom.sandbox.grant import Grant
from peerloom.sandbox.readable import known_interpreter_files


def become(ask: Ask, received: list[int], origin: int | None) -> NoReturn:
    """Runs it, and ends as Python would; `received` are its descriptors, in the order of those asked for.

    `origin` is the descriptor of its socket to an origin of its own.
    """
    if ask.leads_session:
        os.setsid()
    wanted = dict(zip(ask.descriptors, received, strict=True))
    if origin is None:
        take_descriptors(wanted)
    else:
        number = max(wanted) + 1
        take_descriptors({**wanted, number: origin})
        os.set_inheritable(number, False)
        install(Origin(socket.socket(fileno=number)))
    os.chdir(ask.cwd)
    os.environ.clear()
    os.environ.update(ask.environment)
    tempfile.tempdir = None
    known_interpreter_files.cache_clear()
    time.tzset()
    show_command_line(ask.words)
    _open_standard_streams()
    _end_with(_status_of(ask.words))


def take_descriptors(wanted: dict[int, int]) -> None:
    """Leaves open what is wanted, under its number, and nothing else."""
    above = max(wanted) + 1
    moved = {number: fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, above) for number, ours in wanted.items()}
    for number, ours in moved.items():
        os.dup2(ours, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in wanted:
            try:
                os.close(int(name))
            except OSError:  # the descriptor of this very list
                continue


def show_command_line(words: list[str]) -> None:
    """Writes over our arguments, as far as they reach, so that ps and psutil see these words."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5)
    text = b"".join(os.fsencode(word) + b"\0" for word in words)[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _open_standard_streams() -> None:
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # type: ignore[misc]  # noqa: SIM115
        2, "w", buffering=1, errors="backslashreplace", closefd=False
    )


def _status_of(words: list[str]) -> int:
    try:
        _run(words)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]  # there is one
        return -signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]  # there is one
        return 1
    return 0


def _run(words: list[str]) -> None:
    sys.path[1:1] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    if words[1:3] == SANDBOX:
        confine(Grant.from_json(words[3]))
        words = words[4:]
        show_command_line(words)
    sys.orig_argv = list(words)
    if words[1] == "-m":
        sys.argv = words[2:]
        sys.path[0] = os.getcwd()
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words[1:]
        sys.path[0] = os.path.dirname(words[1])
        runpy.run_path(words[1], run_name="__main__")


def _end_with(status: int) -> NoReturn:
    """As the interpreter ends, but for taking apart all that the origin imported, which takes long."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 120
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 0xFF)
