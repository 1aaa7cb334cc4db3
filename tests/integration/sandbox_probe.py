"""Tries what a job's code might, and prints what came of it: a line of JSON, "done" or the error by its name.

Run as a program it takes the targets as JSON; a task that was sent along calls `try_all` with them.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Of x86_64 and of aarch64.
_MOUNT, _UNMOUNT, _PTRACE, _KEYCTL, _IO_URING_SETUP, _USERFAULTFD = {
    "x86_64": (165, 166, 101, 250, 425, 323),
    "aarch64": (40, 39, 117, 219, 425, 282),
}[os.uname().machine]
_SEIZE, _NEW_USER_NAMESPACE = 0x4206, 0x1000_0000
_libc = ctypes.CDLL(None, use_errno=True)


def try_all(targets: dict[str, Any]) -> dict[str, str]:
    """What came of each attempt at these targets, those of `_attempts` that they are enough for."""
    return {name: _outcome(attempt) for name, attempt in _attempts(targets).items()}


def _attempts(at: dict[str, Any]) -> dict[str, Callable[[], object]]:
    agent = at["agent_pid"]
    return {
        "read_state": lambda: Path(at["state"], "node.json").read_text(),
        "list_state": lambda: os.listdir(at["state"]),
        "read_accounts": Path("/etc/shadow").read_text,
        "write_outside": lambda: Path(at["outside"], "written").write_text("x"),
        "open_rights": lambda: _change_mode(Path(at["outside"], "mine")),
        "mark": lambda: os.setxattr(Path(at["outside"], "mine"), "user.mark", b"x"),
        "read_other_job": lambda: Path(at["other_job"], "secret").read_text(),
        "write_other_job": lambda: Path(at["other_job"], "secret").write_text("x"),
        "read_environment": Path(f"/proc/{agent}/environ").read_bytes,
        "signal": lambda: os.kill(agent, 0),
        "trace": lambda: _in_child(lambda: _call(_PTRACE, _SEIZE, agent, None, None)),
        "slow_down": lambda: os.setpriority(os.PRIO_PROCESS, agent, os.getpriority(os.PRIO_PROCESS, agent)),
        "send_datagram": lambda: _send(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 9)),
        "connect_unix": lambda: _send(socket.AF_UNIX, socket.SOCK_STREAM, at["unix_socket"]),
        "listen_at_port": lambda: socket.create_server(("127.0.0.1", at["port"])).close(),
        "leave_group": lambda: _in_child(os.setsid, lambda: os.getsid(0) == os.getpid()),
        "namespace": lambda: _in_child(_new_namespace),
        "mount": lambda: _mount(at["outside"].encode()),
        "keyring": lambda: _call(_KEYCTL, 0, -3, 0),
        "io_uring": lambda: os.close(_call(_IO_URING_SETUP, 1, ctypes.create_string_buffer(120))),
        "page_faults": lambda: os.close(_call(_USERFAULTFD, 1)),
        "become_root": lambda: _become_root(at["set_uid"]),
    }


def need_all(targets: dict[str, Any]) -> dict[str, str]:
    """What came of what trainings do."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        needed: dict[str, Callable[[], object]] = {
            "temporary": lambda: tempfile.NamedTemporaryFile(dir=os.environ["TMPDIR"]).close(),
            "folder": lambda: _use_folder(Path(os.environ["TMPDIR"])),
            "data": lambda: Path(targets["data"], "samples").read_text(),
            "package": lambda: __import__("installed_package"),
            "library": lambda: __import__("sqlite3").connect(":memory:").close(),
            "connect": lambda: socket.create_connection(server.getsockname()).close(),
            "resolve": lambda: socket.getaddrinfo("localhost", 80),
            "interfaces": socket.if_nameindex,
            "pair": lambda: [one.close() for one in socket.socketpair()],
            "thread": lambda: threading.Thread(target=int).start(),
            "program": lambda: subprocess.run(["/bin/sh", "-c", "exit 0"], check=True),
            "session": lambda: subprocess.run(["/bin/true"], check=True, start_new_session=True),
            "own_signal": lambda: os.kill(os.getpid(), 0),
            "random": lambda: os.close(os.open("/dev/urandom", os.O_RDONLY)),
        }
        return {name: _outcome(attempt) for name, attempt in needed.items()}


def _outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except Exception as error:
        return type(error).__name__
    return "done"


def _call(number: int, *arguments: Any) -> int:
    returned: int = _libc.syscall(number, *arguments)
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return returned


def _mount(folder: bytes) -> None:
    _call(_MOUNT, b"none", folder, b"tmpfs", 0, None)
    _call(_UNMOUNT, folder, 0)


def _change_mode(path: Path) -> None:
    path.chmod(0o666)
    if path.stat().st_mode & 0o777 != 0o666:
        raise PermissionError("it says so, but nothing has changed")


def _new_namespace() -> None:
    if _libc.unshare(_NEW_USER_NAMESPACE) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def _in_child(attempt: Callable[[], object], holds: Callable[[], bool] = lambda: True) -> None:
    """In a process of its own: what it changes is for good."""
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
            os._exit(0 if holds() else 1)
        finally:
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        raise PermissionError("not in the child")


def _send(family: int, kind: int, address: Any) -> None:
    with socket.socket(family, kind) as line:
        line.connect(address)
        line.send(b"x")


def _become_root(program: str) -> None:
    told = subprocess.run([program, "-u"], user=65534, capture_output=True, text=True, check=True)
    if told.stdout.strip() != "0":
        raise PermissionError(told.stdout)


def _use_folder(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "one").touch()
    (folder / "deep" / "one").rename(folder / "two")
    (folder / "two").unlink()


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    print(json.dumps({"attempts": try_all(told), "needs": need_all(told)}))
