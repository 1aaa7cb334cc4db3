"""Two of each coordinator on one PostgreSQL, and agents; whoever ends is started again."""

import json
import socket
import subprocess
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any

from benchmarks.chaos.places import InTestbed, Place, namespaces_plan, on_loopback, open_place, python
from benchmarks.chaos.system import COORDINATORS
from benchmarks.new_database import by_socket, new_postgresql
from peerloom.testbed import Plan, Testbed

RESTART_S = LOOK_S = 1.0
READY_LOOKS = 120
FIRST_PORT = 7400


@contextmanager
def open_system(folder: Path, slots: Sequence[int], has_standbys: bool) -> Iterator[Place]:
    """One of each coordinator on SQLite, or two of each on a new database of PostgreSQL."""
    if has_standbys:
        with new_postgresql() as url, open_replicas(folder, slots, url) as replicas:
            yield replicas
    else:
        with open_place(folder, slots) as place:
            yield place


def open_replicas(folder: Path, slots: Sequence[int], database: str) -> "Replicas":
    """Each node in a network namespace where this machine lets us, else all on loopback; says why."""
    plan = namespaces_plan(slots)
    if plan is None:
        return ReplicasOnLoopback(folder, slots, database)
    return ReplicasInNamespaces(folder, slots, by_socket(database), plan)


class Replicas(Place):
    """A place whose coordinators have standbys. Who ends is started again, at its address, within 1 s."""

    has_standbys = True
    flags: tuple[str, ...] = ()  # of each service more

    def __init__(self, folder: Path, slots: Sequence[int], database: str) -> None:
        self._folder, self._slots, self._database = folder, slots, database
        self.registries = ""
        self._ending = threading.Event()
        self._keepers: list[threading.Thread] = []

    @abstractmethod
    def new_address(self, host: str) -> str:
        """A host:port there that nobody listens at."""

    @abstractmethod
    def start(self, command: Sequence[str], host: str, output: IO[str]) -> "subprocess.Popen[Any]":
        """Starts a service there, which writes to `output`."""

    def __enter__(self) -> "Replicas":
        addresses = {name: [self.new_address("control") for _ in range(2)] for name in COORDINATORS}
        self.registries = ",".join(addresses["registry"])
        for name in COORDINATORS:
            for number, address in enumerate(addresses[name], 1):
                self._keep(f"{name}-{number}", "control", name, address, *self._arguments(name))
        for number, slots in enumerate(self._slots, 1):
            name = f"node-{number}"
            state = ("--state", str(self._folder / "nodes" / name), "--threads-per-slot", "1")
            own = ("--registry", self.registries, "--name", name, "--slots", str(slots))
            self._keep(name, name, "node_agent", self.new_address(name), *own, *state)
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for keeper in self._keepers:
            keeper.join()

    def _arguments(self, name: str) -> tuple[str, ...]:
        state = ("--state", str(self._folder / name), "--database", self._database)
        return state if name == "registry" else (*state, "--registry", self.registries)

    def _keep(self, called: str, host: str, name: str, listen: str, *arguments: str) -> None:
        command = python([f"peerloom.services.{name}", "--listen", listen, *self.flags, *arguments])
        log = self._folder / "logs" / f"{called}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        keeper = threading.Thread(target=self._run, args=(command, host, log), name=called)
        self._keepers.append(keeper)
        keeper.start()

    def _run(self, command: Sequence[str], host: str, log: Path) -> None:
        while not self._ending.is_set():
            with log.open("a") as output:
                process = self.start(command, host, output)
            while process.poll() is None and not self._ending.wait(RESTART_S):
                pass
            if process.poll() is None:
                process.terminate()
                process.wait()

    def _wait_until_ready(self) -> None:
        for _ in range(READY_LOOKS):
            output, _ = self.command(["nodes", "list", "-o", "json"]).communicate()
            nodes = json.loads(output) if output.strip() else []
            if sum(node["state"] == "alive" for node in nodes) == len(self._slots):
                return
            self._ending.wait(LOOK_S)
        raise SystemExit(
            f"not all of {len(self._slots)} nodes came; the logs were in {self._folder / 'logs'}"
        )


class ReplicasOnLoopback(Replicas):
    """All on the loopback interface: none can be cut off."""

    told = "on loopback, with two of each coordinator on PostgreSQL"

    def new_address(self, host: str) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{probe.getsockname()[1]}"

    def start(self, command: Sequence[str], host: str, output: IO[str]) -> "subprocess.Popen[Any]":
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def run(self, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        return on_loopback(arguments, self.registries)


class ReplicasInNamespaces(InTestbed, Replicas):
    """Each node and the coordinators in a network namespace, behind one bridge.

    They reach the database by its Unix socket.
    """

    flags = ("--allow-plain",)
    told = "in network namespaces behind a bridge (netem), with two of each coordinator on PostgreSQL"

    def __init__(self, folder: Path, slots: Sequence[int], database: str, plan: Plan) -> None:
        super().__init__(folder, slots, database)
        self.testbed = Testbed(plan, folder / "network", system=False)
        self._addresses = {host.name: host.address for host in plan.all_hosts}
        self._ports = count(FIRST_PORT)

    def new_address(self, host: str) -> str:
        return f"{self._addresses[host]}:{next(self._ports)}"

    def start(self, command: Sequence[str], host: str, output: IO[str]) -> "subprocess.Popen[Any]":
        return self.testbed.popen(command, host, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def finding(self) -> Sequence[str]:
        return ("env", f"PEERLOOM_ADDRESS={self.registries}")

    def __enter__(self) -> "ReplicasInNamespaces":
        self.testbed.start()
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.testbed.stop()
