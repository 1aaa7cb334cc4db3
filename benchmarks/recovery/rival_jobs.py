"""Rivals' jobs: started with as many workers as ours, each with its steps in a file."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import psutil

from benchmarks.recovery import environment
from benchmarks.recovery.small_model import WORKERS
from benchmarks.recovery.steps_file import Committed, StepsRead
from benchmarks.recovery.torchft_limits import Limits

T = TypeVar("T")
NIGHTLY, STABLE = "torchft-nightly", "torchft==0.2.0"
LIMIT_S = 60.0
SETTLE_S = 1.5
POLL_S = 0.05
TICK_MS = 10  # how often the lighthouse looks for the end of its join limit; by default each 100 ms


class RivalJob:
    """One running job; `restart` brings a killed worker back where the rival doesn't do it itself."""

    def __init__(
        self,
        folder: Path,
        errors: Path,
        is_running: Callable[[], bool],
        restart: Callable[[int], None] | None = None,
    ) -> None:
        self.errors = errors
        self.is_running = is_running
        self.restart = restart
        self._steps = StepsRead(folder)

    def wait_for(self, find: Callable[[list[Committed]], T | None]) -> T | None:
        """What was found among the steps; None when it wasn't in time, or nobody is left who could."""
        deadline_s = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline_s and self.is_running():
            found = find(self._steps.all())
            if found is not None:
                return found
            time.sleep(POLL_S)
        return None

    def wait_until_full(self) -> bool:
        """Whether all members commit steps together for a while."""

        def is_full(steps: list[Committed]) -> bool | None:
            recent = [one for one in steps if one.at_s > time.time() - SETTLE_S]
            is_alone = all(one.members == WORKERS for one in recent)
            return (len({one.pid for one in recent}) == WORKERS and is_alone) or None

        return self.wait_for(is_full) is not None

    def members(self) -> list[int]:
        """The pids that commit steps now."""
        recent = [one for one in self._steps.all() if one.at_s > time.time() - SETTLE_S]
        return sorted({one.pid for one in recent})

    def steps_between(self, begin_s: float, end_s: float) -> int:
        """Steps committed within a window, each once however many took part."""
        return len({one.step for one in self._steps.all() if begin_s <= one.at_s < end_s})

    def last_words(self) -> str:
        """The last line of the errors that names an error."""
        lines = [line for line in self.errors.read_text(errors="replace").splitlines() if "Error" in line]
        return lines[-1].strip()[:200] if lines else "no error was printed"


@contextmanager
def torchrun(unshared_store: bool, restarts: int = 3, backend: str = "gloo") -> Iterator[RivalJob]:
    """torchrun elastic on one node, which may start its workers anew so many times."""
    python = environment.python()
    more = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if unshared_store else {}
    with TemporaryDirectory(prefix="rival-") as name:
        folder, errors = Path(name), Path(name) / "errors.txt"
        module = ("-m", "benchmarks.recovery.torchrun_worker", name, backend)
        options = ("--standalone", f"--nproc-per-node={WORKERS}", f"--max-restarts={restarts}")
        command = (str(python), "-m", "torch.distributed.run", *options, *module)
        with errors.open("w") as output:
            process = _start(command, environment.variables(**more), output.fileno())
            try:
                yield RivalJob(folder, errors, lambda: process.poll() is None)
            finally:
                end_families([process])


@contextmanager
def torchft(requirement: str, limits: Limits) -> Iterator[RivalJob]:
    """A lighthouse and five replicas of one process each."""
    python, packages = str(environment.python()), environment.package(requirement)
    address = f"127.0.0.1:{_free_port()}"
    variables = environment.variables(packages, TORCHFT_LIGHTHOUSE=f"http://{address}")
    with TemporaryDirectory(prefix="rival-") as name:
        folder, errors = Path(name), Path(name) / "errors.txt"
        replicas: dict[int, subprocess.Popen[bytes]] = {}
        with errors.open("w") as output:

            def start(number: int) -> None:
                arguments = (name, str(number), str(limits.collective_s))
                command = (python, "-m", "benchmarks.recovery.torchft_worker", *arguments)
                replicas[number] = _start(command, variables, output.fileno())

            def is_running() -> bool:
                return any(replica.poll() is None for replica in replicas.values())

            def restart(pid: int) -> None:
                start(next(number for number, replica in replicas.items() if replica.pid == pid))

            serve = str(packages / "bin" / "torchft_lighthouse")
            flags = ("--bind", address, "--min_replicas", "2", "--join_timeout_ms", str(limits.join_ms))
            command = (python, serve, *flags, "--quorum_tick_ms", str(TICK_MS))
            lighthouse = _start(command, variables, output.fileno())
            try:
                for number in range(WORKERS):
                    start(number)
                yield RivalJob(folder, errors, is_running, restart)
            finally:
                end_families([*replicas.values(), lighthouse])


def _start(command: tuple[str, ...], variables: dict[str, str], output: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, env=variables, stdout=output, stderr=output, start_new_session=True)


def end_families(processes: "Iterable[subprocess.Popen[bytes]]") -> None:
    """Kills each with all that it has started."""
    for process in processes:
        family = [process.pid]
        if psutil.pid_exists(process.pid):
            family += [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        for pid in family:
            if psutil.pid_exists(pid):
                psutil.Process(pid).kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
