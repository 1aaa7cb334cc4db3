"""One process imports what takes seconds; each worker is a fork of it, there in milliseconds.

Standard input is a Unix socket from the node agent. When all is imported this side writes one byte; each byte
then comes with two descriptors: the new worker's standard input, and a pipe for its status. Into that pipe
the worker writes "pid" and its process id once it leads a session of its own, and this process, its parent,
"exit" and the exit status (negative: a signal) when it is gone. When the agent closes the socket no more are
forked, and this process stays until the last has ended, to tell how.

It may fork because it keeps to one thread, and opens neither gRPC nor CUDA: none of them survives a fork.
"""

import gc
import importlib
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress

from peerloom.sandbox.process_environment import CORES_VARIABLE
from peerloom.sandbox.resource_limits import limit_always


def keep_to_lent_cores() -> None:
    """Leaves this process, and all that it forks, the cores that its owner lends."""
    if lent := os.environ.get(CORES_VARIABLE):
        os.sched_setaffinity(0, {int(core) for core in lent.split(",")})


def serve(work: Callable[[], int]) -> None:
    """Forks a process that runs `work`, and exits with what it returns, for each request of the agent."""
    gc.freeze()  # a collection in a worker would write to, and so copy, all that it shares
    with socket.socket(fileno=os.dup(0)) as requests:
        woken, wakes = _woken_at_ends()
        # It ends with the agent's socket, and not before it has told how its workers ended.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        status_of: dict[int, int] = {}
        with suppress(BrokenPipeError):  # the agent died meanwhile, which the next line sees
            requests.sendall(b"r")
        asks, is_open = requests.fileno(), True
        while is_open or status_of:
            readable, _, _ = select.select([woken, asks] if is_open else [woken], [], [])
            if woken in readable:
                os.read(woken, 4096)
                _tell_ends(status_of)
            if asks in readable:
                is_open = _answer(requests, (woken, wakes), status_of, work)


def _answer(
    requests: socket.socket, own: tuple[int, ...], status_of: dict[int, int], work: Callable[[], int]
) -> bool:
    """Forks what was asked for; False when the agent asks no more. `own` descriptors aren't the worker's."""
    try:
        _, descriptors, _, _ = socket.recv_fds(requests, 1, 2)
    except ConnectionResetError:
        return False
    if len(descriptors) != 2:
        return False
    inputs, status = descriptors
    os.set_inheritable(status, False)
    try:
        pid = os.fork()
    except OSError as error:
        print(f"A worker can't be forked: {error}.", file=sys.stderr, flush=True)
        os.close(status)
    else:
        if pid == 0:
            _become_worker(requests, [*own, *status_of.values()], inputs, status, work)
        status_of[pid] = status
    os.close(inputs)
    return True


def _become_worker(
    requests: socket.socket, others: list[int], inputs: int, status: int, work: Callable[[], int]
) -> None:
    """Never returns. `status` stays open, so that its end is that of both processes."""
    exit_status = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)  # from Python 3.12 a fork has none
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        requests.close()
        for other in others:
            os.close(other)
        os.dup2(inputs, 0)
        os.close(inputs)
        importlib.invalidate_caches()  # a task may have been installed since
        limit_always()
        os.write(status, b"pid %d\n" % os.getpid())
        exit_status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        # Not sys.exit: a thread of a broken process group must not keep the process alive.
        os._exit(exit_status)


def _woken_at_ends() -> tuple[int, int]:
    """A descriptor that becomes readable when a child ends, and the one that makes it so."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return woken, wakes


def _tell_ends(status_of: dict[int, int]) -> None:
    for pid in list(status_of):
        ended, waited = os.waitpid(pid, os.WNOHANG)
        if ended:
            status = status_of.pop(pid)
            with suppress(BrokenPipeError):
                os.write(status, b"exit %d\n" % os.waitstatus_to_exitcode(waited))
            os.close(status)
