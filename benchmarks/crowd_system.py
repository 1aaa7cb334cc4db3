"""The processes of a system of very many nodes: a server that can be killed, and crowds of agents."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Any
from urllib.request import ProxyHandler, build_opener

import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.repeating import Repeating

READ_S, STOP_S = 30.0, 30.0
LOOK_S = 0.25
# What the registry keeps for other files than connections, and for connections of others than nodes; and the
# memory that a node takes in all processes together.
OTHER_FILES = 4_096 + 100
NODE_BYTES = 400_000


def check_machine(nodes: int) -> None:
    """Ends the program where the machine can't carry so many nodes, and says what it needs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = nodes + OTHER_FILES
    if hard != resource.RLIM_INFINITY and hard < files:
        raise SystemExit(
            f"error: {nodes:,} nodes are as many connections to one process, which needs {files:,} open "
            f"files, and {hard:,} are allowed here. Raise it first: ulimit -Hn {files} (as root), or "
            "LimitNOFILE= in a unit of systemd."
        )
    wanted, free = nodes * NODE_BYTES, psutil.virtual_memory().available
    if free < wanted:
        raise SystemExit(
            f"error: {nodes:,} nodes need some {wanted / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB "
            "are available. End other programs, or take fewer nodes: NODES=3000."
        )
    if (cores := len(psutil.Process().cpu_affinity() or [0])) < 2:
        raise SystemExit(f"error: this needs two cores, one for the agents, and has {cores}.")


class Crowd:
    """A process that holds so many agents; `leave_suddenly` is its SIGKILL."""

    def __init__(self, port: int, first: int, count: int) -> None:
        self.first, self.count, self._port = first, count, port
        command = [sys.executable, "-m", "benchmarks.agent_crowd", str(port), str(first), str(count)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._read()

    def again(self) -> "Crowd":
        """The same agents in a new process."""
        return Crowd(self._port, self.first, self.count)

    def say(self, *command: object) -> None:
        """Sends a command."""
        assert self._process.stdin is not None, "it is a pipe"
        print(*command, file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        """What it says to the command before."""
        return json.loads(self._read())

    def leave_suddenly(self) -> None:
        """Kills all its agents at once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def _read(self) -> str:
        assert self._process.stdout is not None, "it is a pipe"
        line: str = self._process.stdout.readline()
        if not line:
            raise SystemExit("error: a process of agents has ended; what it said stands above.")
        return line


def ask_all(crowds: Sequence[Crowd], *command: object) -> list[Any]:
    """The answers of all to one command, which they carry out at the same time."""
    for crowd in crowds:
        crowd.say(*command)
    return [crowd.answer() for crowd in crowds]


class Service:
    """A server's process, which can be killed and started again at the same port.

    `arguments` are its own, made from the host:port to listen at.
    """

    def __init__(
        self, module: str, arguments: Callable[[str], Sequence[str]], host: str, log: IO[bytes]
    ) -> None:
        self._module, self._arguments, self._log = module, arguments, log
        self._host, self.port, self.metrics = host, 0, ""
        self.start()

    def start(self) -> None:
        """Starts it; returns when it serves."""
        command = [sys.executable, "-m", self._module, *self._arguments(f"{self._host}:{self.port}")]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self._process.stdout is not None, "it is a pipe"
        line = self._process.stdout.readline().strip()
        if not line.startswith("address="):
            self._log.seek(0)
            raise SystemExit(f"{self._module} did not start: {self._log.read().decode(errors='replace')}")
        address, _, self.metrics = line.removeprefix("address=").partition(" metrics=")
        self.port = int(address.rpartition(":")[2])

    @property
    def address(self) -> str:
        """Where it is reached on this machine."""
        return f"127.0.0.1:{self.port}"

    def memory_bytes(self) -> int:
        """What the process has of memory to itself."""
        return int(psutil.Process(self._process.pid).memory_full_info().uss)

    def processor_s(self) -> float:
        """Processor time used so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """SIGTERM; SIGKILL if that takes too long."""
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        self.kill()

    def _end(self) -> None:
        self._process.wait()
        assert self._process.stdout is not None, "it is a pipe"
        self._process.stdout.close()

    def reading(self, metric: str, **labels: str) -> float:
        """One of the figures that it tells Prometheus."""
        with build_opener(ProxyHandler({})).open(f"http://{self.metrics}/metrics", timeout=READ_S) as answer:
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == metric and labels.items() <= sample.labels.items():
                    return float(sample.value)
        raise SystemExit(f"error: {self._module} tells no {metric}")


class SelectorLag(Repeating):
    """Looks all the time how far a selector is behind the registry's events, until the block ends."""

    def __init__(self, selector: Service) -> None:
        super().__init__("lag", LOOK_S)
        self._selector, self._seen_s = selector, [0.0]

    def most_s(self) -> float:
        """The most seen since this was asked last, in seconds."""
        seen, self._seen_s = self._seen_s, [0.0]
        return max(seen)

    def act(self) -> None:
        """One more look."""
        self._seen_s.append(self._selector.reading("peerloom_selector_follower_delay_seconds"))
