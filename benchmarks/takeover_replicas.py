"""The system that loses its leaders: two processes of each coordinator, and an agent with workers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.chaos.system import COORDINATORS
from benchmarks.cuttable_network import CuttableNetwork
from peerloom.embedded.health import Prober

HOSTS = tuple(f"{name}-{number}" for name in COORDINATORS for number in (1, 2))
LEAD_LIMIT_S = 60.0
START_TRIES = 3


@dataclass(frozen=True)
class Part:
    """A coordinator's process, where it listens, and the host that it is on where there are hosts."""

    process: "subprocess.Popen[str]"
    address: str
    host: str


class Replicas:
    """Of each pair the first one leads. With a network, each coordinator is on one of its HOSTS."""

    def __init__(self, url: str, folder: Path, slots: int, network: CuttableNetwork | None = None) -> None:
        self._url, self._folder, self._network = url, folder, network
        self.registry, self._pairs = "", dict[str, list[Part]]()
        for name in COORDINATORS:
            self._pairs[name] = [self._start(name, f"{name}-{number}") for number in (1, 2)]
            if name == "registry":
                self.registry = ",".join(part.address for part in self._pairs[name])
        own = ("--slots", str(slots), "--state", str(folder / "node"), "--registry", self.registry)
        here = "127.0.0.1" if network is None else network.ours
        # Workers note their steps there, which the sandbox wouldn't let them.
        noting = ("--data-root", str(folder), "--no-sandbox")
        self._agent = self._launch("node_agent", *own, *noting, "--listen", f"{here}:0")

    def _start(self, name: str, host: str, listen: str = "") -> Part:
        if not listen:
            listen = "127.0.0.1:0" if self._network is None else f"{self._network.address(host)}:0"
        arguments = ["--database", self._url, "--listen", listen, "--state", str(self._folder / name)]
        if name != "registry":
            arguments += ["--registry", self.registry]
        for _ in range(START_TRIES):  # one whose first connection to its database is reset ends
            process = self._at(host, lambda: self._launch(name, *arguments))
            assert process.stdout is not None, "its address is read there"
            said = process.stdout.readline().strip()
            if said.startswith("address="):
                return Part(process, said.removeprefix("address="), host)
            process.wait()
        raise SystemExit(f"the {name} of {host} ended {START_TRIES} times as it began")

    def _at(self, host: str, launch: Callable[[], "subprocess.Popen[str]"]) -> "subprocess.Popen[str]":
        return launch() if self._network is None else self._network.on(host, launch)

    def _launch(self, name: str, *arguments: str) -> "subprocess.Popen[str]":
        plain = () if self._network is None else ("--allow-plain",)
        command = [sys.executable, "-m", f"peerloom.services.{name}", *arguments, *plain]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, stdin=subprocess.DEVNULL
        )

    def signal(self, names: Sequence[str], number: signal.Signals) -> None:
        """Kills or freezes these leaders."""
        for name in names:
            self._pairs[name][0].process.send_signal(number)

    def cut(self, names: Sequence[str]) -> None:
        """Cuts the hosts of these leaders from everybody."""
        assert self._network is not None, "without one nobody can be cut off"
        self._network.cut([self._pairs[name][0].host for name in names])

    def restore(self, names: Sequence[str]) -> None:
        """Starts the lost ones anew, as the standbys of those that lead now, with their network."""
        for name in names:
            lost, leading = self._pairs[name]
            lost.process.kill()
            lost.process.wait()
            if self._network is not None:
                self._network.mend([lost.host])
            self._pairs[name] = [leading, self._start(name, lost.host, lost.address)]

    def wait_until_standbys_lead(self, names: Sequence[str]) -> None:
        """Until they serve. Raises SystemExit when one doesn't."""
        deadline_s = time.monotonic() + LEAD_LIMIT_S
        with Prober() as prober:
            while {prober.health(self._pairs[name][1].address) for name in names} != {"SERVING"}:
                if time.monotonic() > deadline_s:
                    raise SystemExit(f"not all standbys of {', '.join(names)} lead after {LEAD_LIMIT_S:g} s")

    def kill_worker(self) -> None:
        """SIGKILL to one that has a job."""
        for child in psutil.Process(self._agent.pid).children(recursive=True):
            with suppress(OSError):  # it has just ended
                if Path(os.readlink(f"/proc/{child.pid}/fd/1")).name.startswith("worker-"):
                    child.kill()
                    return
        raise SystemExit("there is no worker to kill")

    def close(self) -> None:
        """Ends all."""
        for process in (self._agent, *(part.process for pair in self._pairs.values() for part in pair)):
            process.kill()
            process.wait()
