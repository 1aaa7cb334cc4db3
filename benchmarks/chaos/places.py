"""Where the system runs under chaos: on loopback, or, as root, each node in a network of its own."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from peerloom.embedded import Embedded
from peerloom.errors import PeerloomError
from peerloom.testbed import Action, Testbed, parse_plan
from peerloom.testbed.needs import check_needs

SLOTS = (3, 2, 2, 1, 1)
NAMES = tuple(f"node-{number}" for number in range(1, len(SLOTS) + 1))
# Without a door, as on loopback.
NETWORK = """
version: 1
name: chaos
backend: netem
door: false
network: {nodes: 6, medium: csma, rate: 1Gbps, mtu: 1500}
hosts:
"""


class Place(Protocol):
    """A running system; a context manager."""

    can_cut: bool

    def command(self, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        """Starts `peerloom ARGUMENTS` as a user would, with its output in a pipe."""

    def cut(self, node: str) -> None:
        """No packet leaves or reaches the node from now on."""

    def mend(self, node: str) -> None:
        """The node has its network again."""

    def __enter__(self) -> "Place": ...

    def __exit__(self, *_: object) -> None: ...


def open_place(folder: Path) -> Place:
    """Namespaces where this machine lets us, else loopback; says why."""
    hosts = (f"  - {{name: {name}, node: {at}, slots: {SLOTS[at - 1]}}}" for at, name in enumerate(NAMES, 1))
    plan = parse_plan("chaos", NETWORK + "\n".join(hosts) + "\n")
    try:
        check_needs(plan)
    except PeerloomError as error:
        print(f"nodes aren't cut off in this run: {error.message}", file=sys.stderr)
        return Loopback(folder)
    return Namespaces(Testbed(plan, folder))


class Loopback:
    """All nodes on the loopback interface: none can be cut off; who asks `can_cut` first never tries."""

    can_cut = False

    def __init__(self, folder: Path) -> None:
        self._system = Embedded(folder, SLOTS)

    def command(self, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        environment = {**os.environ, "PEERLOOM_ADDRESS": self._system.address}
        return subprocess.Popen(_peerloom(arguments), env=environment, stdout=subprocess.PIPE, text=True)

    def cut(self, node: str) -> None:
        raise NotImplementedError

    def mend(self, node: str) -> None:
        raise NotImplementedError

    def __enter__(self) -> "Loopback":
        self._system.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._system.stop()


class Namespaces:
    """Each node and the control plane in a network namespace of its own, behind one bridge."""

    can_cut = True

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed

    def command(self, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        given: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True}
        return self._testbed.popen(_peerloom(arguments), **given)  # type: ignore[return-value]  # text is given

    def cut(self, node: str) -> None:
        self._testbed.apply(Action("leave", (node,)))

    def mend(self, node: str) -> None:
        self._testbed.apply(Action("join", (node,)))

    def __enter__(self) -> "Namespaces":
        self._testbed.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._testbed.stop()


def _peerloom(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "peerloom.cli", *arguments]
