"""Where the system runs under chaos: on loopback, or, as root, each node in a network of its own."""

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peerloom.embedded import Embedded
from peerloom.errors import PeerloomError
from peerloom.testbed import Action, Plan, Testbed, parse_plan
from peerloom.testbed.needs import check_needs

SLOTS = (3, 2, 2, 1, 1)
# Without a door, as on loopback.
NETWORK = """
version: 1
name: chaos
backend: netem
door: false
network: {nodes: NODES, medium: csma, rate: 1Gbps, mtu: 1500}
hosts:
"""


class Place(ABC):
    """A running system; a context manager."""

    can_cut = has_standbys = False
    told: str  # what it is, in a few words

    @abstractmethod
    def run(self, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        """Starts a Python module, `MODULE ARGUMENTS`, that finds the system as a user's would."""

    def command(self, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        """Starts `peerloom ARGUMENTS` as a user would, with its output in a pipe."""
        return self.run(["peerloom.cli", *arguments])

    def cut(self, node: str) -> None:
        """No packet leaves or reaches the node from now on; only where `can_cut`."""
        raise NotImplementedError(f"no node can be cut off {self.told}")

    def mend(self, node: str) -> None:
        """The node has its network again."""
        raise NotImplementedError(f"no node can be cut off {self.told}")

    @abstractmethod
    def __enter__(self) -> "Place": ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...


def open_place(folder: Path, slots: Sequence[int] = SLOTS) -> Place:
    """Namespaces where this machine lets us, else loopback; says why. A node for each entry of `slots`."""
    plan = namespaces_plan(slots)
    return Loopback(folder, slots) if plan is None else Namespaces(Testbed(plan, folder))


def namespaces_plan(slots: Sequence[int]) -> Plan | None:
    """A network with hosts node-1, node-2 …, one an entry; None, and says why, where the machine has none."""
    hosts = (f"  - {{name: node-{at}, node: {at}, slots: {count}}}" for at, count in enumerate(slots, 1))
    network = NETWORK.replace("NODES", str(len(slots) + 1))
    plan = parse_plan("chaos", network + "\n".join(hosts) + "\n")
    try:
        check_needs(plan)
    except PeerloomError as error:
        print(f"nodes aren't cut off in this run: {error.message}", file=sys.stderr)
        return None
    return plan


class Loopback(Place):
    """All nodes on the loopback interface: none can be cut off."""

    told = "on loopback"

    def __init__(self, folder: Path, slots: Sequence[int]) -> None:
        self._system = Embedded(folder, slots)

    def run(self, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        return on_loopback(arguments, self._system.address)

    def __enter__(self) -> "Loopback":
        self._system.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._system.stop()


class InTestbed(Place):
    """Nodes in network namespaces behind one bridge, where each can be cut off."""

    can_cut = True
    testbed: Testbed

    def run(self, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        given: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [*self.finding(), *python(arguments)]
        return self.testbed.popen(command, **given)

    def finding(self) -> Sequence[str]:
        """What stands before a command, so that it finds the registry; nothing for the testbed's own."""
        return ()

    def cut(self, node: str) -> None:
        self.testbed.apply(Action("leave", (node,)))

    def mend(self, node: str) -> None:
        self.testbed.apply(Action("join", (node,)))


class Namespaces(InTestbed):
    """The control plane is in a network namespace, too."""

    told = "in network namespaces behind a bridge (netem)"

    def __init__(self, testbed: Testbed) -> None:
        self.testbed = testbed

    def __enter__(self) -> "Namespaces":
        self.testbed.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.testbed.stop()


def on_loopback(arguments: Sequence[str], registry: str) -> "subprocess.Popen[str]":
    """Starts a Python module that finds the registry there, with pipes for what it reads and writes."""
    environment = {**os.environ, "PEERLOOM_ADDRESS": registry}
    command, pipe = python(arguments), subprocess.PIPE
    return subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe)


def python(arguments: Sequence[str]) -> list[str]:
    """The command that runs a module with these arguments."""
    return [sys.executable, "-m", *arguments]
