"""The code that a hostile job brings along. Runs on a node, in a worker; tells what it came to in its log.

It imports nothing of ours but the tasks' interface, as a stranger's would; the node sees this file alone.
"""

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import torch

from peerloom.worker.task import Split, Task

SHOWN = 40


def attempt(name: str, work: Callable[[], object]) -> None:
    """Prints "curious NAME done WHAT" or "curious NAME ERROR"."""
    try:
        result = str(work()).split()
    except Exception as error:
        print(f"curious {name} {type(error).__name__}", flush=True)
    else:
        print(f"curious {name} done {' '.join(result)[:SHOWN]}", flush=True)


def planted(path: Path) -> str:
    """Writes a file that shouldn't be."""
    path.write_text("eve was here")
    return str(path.name)


def first_of(folder: Path) -> str:
    """The first thing in a folder that others' work lies in."""
    return sorted(folder.rglob("*"))[0].name if os.listdir(folder) else "empty"


def signalled(pid: int) -> str:
    """A signal that changes nothing, where others could end the process."""
    os.kill(pid, signal.SIGCONT)
    return f"process {pid} takes signals"


def datagram() -> str:
    """A socket that needs no connection."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.sendto(b"secret", ("127.0.0.1", 9))
    return "sent"


class Curious(Task):
    """Paths come without their leading slash: a node refuses arguments that read like its own files."""

    epochs = 1

    def __init__(self, state: str, other: str, agent: str) -> None:
        home, forker = Path("/", state), os.getppid()
        pid = int(agent)
        attempt("key", lambda: (home / "node.json").read_bytes()[:0] + b"the node's key")
        attempt("identity", lambda: (home / "identity.pem").read_bytes()[:0] + b"the node's certificate")
        attempt("shadow", lambda: f"{len(Path('/etc/shadow').read_bytes())} bytes")
        attempt("look-up", lambda: f"{os.stat('/etc/shadow').st_size} bytes")
        attempt("environ", lambda: f"{len(Path(f'/proc/{pid}/environ').read_bytes())} bytes")
        attempt("forkers-environ", lambda: f"{len(Path(f'/proc/{forker}/environ').read_bytes())} bytes")
        attempt("signal", lambda: signalled(pid))
        attempt("signal-forker", lambda: signalled(forker))
        attempt("datagram", datagram)
        attempt("outside", lambda: planted(home.parent / "planted-by-eve"))
        attempt("in-state", lambda: planted(home / "planted-by-eve"))
        attempt("other-job", lambda: first_of(Path("/", other)))
        attempt("logs", lambda: first_of(home / "logs"))
        attempt("own", Path(os.environ["TMPDIR"], "mine").touch)
        print("curious secret " + os.environ.get("OWNERS_PASSWORD", "none"), flush=True)

    def model(self) -> torch.nn.Module:
        """Any, so that the job succeeds."""
        return torch.nn.Linear(2, 2)

    def data(self) -> tuple[Split, Split]:
        """Points, and whether they lie below the diagonal."""
        points = torch.randn(64, 2, generator=torch.Generator().manual_seed(1))
        split = Split(points, (points[:, 0] > points[:, 1]).long())
        return split, split
