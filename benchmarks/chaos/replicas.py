"""Two of each coordinator on one PostgreSQL, and agents, on loopback; whoever ends is started again."""

import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from benchmarks.chaos.places import Place, on_loopback
from benchmarks.chaos.system import COORDINATORS
from peerloom import Client

RESTART_S = 1.0
READY_S = 120.0


class Replicas(Place):
    """A place whose coordinators have standbys. Who ends is started again, at its address, within 1 s."""

    has_standbys = True
    told = "on loopback, with two of each coordinator on PostgreSQL"

    def __init__(self, folder: Path, slots: Sequence[int], database: str) -> None:
        self._folder, self._slots, self._database = folder, slots, database
        self._registries = ""
        self._ending = threading.Event()
        self._keepers: list[threading.Thread] = []

    def run(self, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        return on_loopback(arguments, self._registries)

    def __enter__(self) -> "Replicas":
        addresses = {name: [_free_address(), _free_address()] for name in COORDINATORS}
        self._registries = ",".join(addresses["registry"])
        for name in COORDINATORS:
            for number, address in enumerate(addresses[name], 1):
                self._keep(f"{name}-{number}", name, address, *self._arguments(name))
        for number, slots in enumerate(self._slots, 1):
            name = f"node-{number}"
            state = ("--state", str(self._folder / "nodes" / name), "--threads-per-slot", "1")
            own = ("--registry", self._registries, "--name", name, "--slots", str(slots))
            self._keep(name, "node_agent", _free_address(), *own, *state)
        self._wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for keeper in self._keepers:
            keeper.join()

    def _arguments(self, name: str) -> tuple[str, ...]:
        state = ("--state", str(self._folder / name), "--database", self._database)
        return state if name == "registry" else (*state, "--registry", self._registries)

    def _keep(self, called: str, name: str, listen: str, *arguments: str) -> None:
        command = [sys.executable, "-m", f"peerloom.services.{name}", "--listen", listen, *arguments]
        log = self._folder / "logs" / f"{called}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        keeper = threading.Thread(target=self._run, args=(command, log), name=called)
        self._keepers.append(keeper)
        keeper.start()

    def _run(self, command: Sequence[str], log: Path) -> None:
        while not self._ending.is_set():
            with log.open("a") as output:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            while process.poll() is None and not self._ending.wait(RESTART_S):
                pass
            if process.poll() is None:
                process.terminate()
                process.wait()

    def _wait_until_ready(self) -> None:
        alive = 0
        with Client(self._registries, patience_s=READY_S) as client:
            for _ in client.watch_nodes():
                alive = sum(node.state == "alive" for node in client.nodes())
                if alive == len(self._slots):
                    return


def _free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
