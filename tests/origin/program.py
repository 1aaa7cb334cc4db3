"""The origin: imports what Peerloom's processes need, and forks one for each request on its socket.

Each is a child of whoever asked, by CLONE_PARENT, and so is waited for as if executed. What allows
`peerloom.worker.fork_server` to fork holds here: there is one thread, and neither gRPC nor CUDA was opened.
"""

import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
import weakref
from contextlib import suppress
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))
from origin.asking import LENGTH_BYTES, Ask
from origin.becoming import become, show_command_line, take_descriptors

sys.path.pop(1)

PROGRAMS = (
    "peerloom.services.registry.__main__",
    "peerloom.services.selector.__main__",
    "peerloom.services.trainer.__main__",
    "peerloom.services.node_agent.__main__",
    "peerloom.inference.server.__main__",
    "peerloom.worker.__main__",
)
# Beside what these import: what is imported at first use.
PARTS = (
    "peerloom.cli.main",
    "peerloom.cli.commands.jobs",
    "peerloom.cli.commands.nodes",
    "peerloom.client.client",
    "peerloom.embedded.system",
)
# They start others, which are to be their children; so each keeps an origin of its own.
STARTS_OTHERS = (("peerloom.services.node_agent",), ("peerloom.cli", "up"), ("peerloom.cli", "demo"))
_CLONE_PARENT, _CHILD_CLEARS_ID, _CHILD_SETS_ID = 0x8000, 0x200000, 0x1000000
_GET_ID_ADDRESS = 40  # prctl: where the C library keeps this thread's id
_CLONE = 56  # on x86_64
_MOST_DESCRIPTORS = 250


def import_all() -> None:
    """What the programs import, but not themselves, which run as __main__."""
    for name in PARTS:
        importlib.import_module(name)
    for name in PROGRAMS:
        module = importlib.import_module(name)
        if name == "peerloom.worker.__main__":
            module.import_all_that_is_slow()
    for name in PROGRAMS:
        del sys.modules[name]
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would not be there after a fork"
    # What is imported isn't taken apart when a fork ends: torch's libraries alone would take 0.1 s.
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # there is no public list
        finalizer.atexit = False
    gc.collect()
    gc.freeze()


def serve(asks: socket.socket) -> None:
    """Forks what is asked for until nobody asks any more."""
    while True:
        header, received, _, _ = socket.recv_fds(asks, LENGTH_BYTES, _MOST_DESCRIPTORS)
        if not header:
            return
        header += _receive(asks, LENGTH_BYTES - len(header))
        ask = Ask.from_bytes(_receive(asks, int.from_bytes(header, "big")))
        pid = fork_for_parent()
        if pid == 0:
            starts_others = tuple(ask.words[2:3]) in STARTS_OTHERS or tuple(ask.words[2:4]) in STARTS_OTHERS
            become(ask, received, fork_origin() if starts_others else None)
        for descriptor in received:
            os.close(descriptor)
        asks.sendall(pid.to_bytes(LENGTH_BYTES, "big"))


def fork_for_parent() -> int:
    """As os.fork, but the new process is our parent's child. Raises OSError."""
    library, interpreter = ctypes.PyDLL(None, use_errno=True), ctypes.pythonapi
    address = ctypes.c_void_p()
    library.prctl(_GET_ID_ADDRESS, ctypes.byref(address), 0, 0, 0)
    flags = _CLONE_PARENT | _CHILD_CLEARS_ID | _CHILD_SETS_ID | signal.SIGCHLD
    long = ctypes.c_long
    interpreter.PyOS_BeforeFork()
    pid = library.syscall(long(_CLONE), long(flags), long(0), long(0), address, long(0))
    if pid == 0:
        interpreter.PyOS_AfterFork_Child()
    else:
        interpreter.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "the origin can't fork")
    return int(pid)


def fork_origin() -> int:
    """A child that serves as we do; the descriptor of our end of the socket to it."""
    ours, theirs = socket.socketpair()
    if os.fork():
        return ours.detach()
    nothing = os.open(os.devnull, os.O_RDWR)
    take_descriptors({0: nothing, 1: nothing, 2: nothing, 3: theirs.fileno()})
    show_command_line([sys.executable, __file__])
    serve(socket.socket(fileno=3))
    os._exit(0)


def _receive(asks: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        if not (part := asks.recv(size - len(received))):
            raise ConnectionError("the origin was asked for half a process")
        received += part
    return received


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        import_all()
        serve(socket.socket(fileno=int(sys.argv[1])))
