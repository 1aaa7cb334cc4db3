"""What carries the frames between the hosts: ns-3, or Linux itself. Both take the same actions.

A back end keeps no state of its own: it is a line to ns-3's control socket, or to the kernel. So any process
may open one on a testbed that is up, and act.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from peerloom.errors import NotFoundError
from peerloom.testbed.names import Names
from peerloom.testbed.plan import Action, Plan


@dataclass(frozen=True)
class NodeCount:
    """What passed a node since the start; sent is what entered the network from it."""

    node: int
    up: bool
    sent_bytes: int
    sent_packets: int
    received_bytes: int
    received_packets: int
    dropped_packets: int


@dataclass(frozen=True)
class Stats:
    """All nodes at one time, in seconds since the start; the lags are None where nothing can lag.

    `lag_s` is how far the simulator is behind the wall clock now, `lag_worst_s` the most since the start,
    `cpu_s` the processor time that it took.
    """

    wall_s: float
    lag_s: float | None
    lag_worst_s: float | None
    cpu_s: float | None
    nodes: tuple[NodeCount, ...]

    def of(self, node: int) -> NodeCount:
        """One node's. Raises KeyError."""
        return {count.node: count for count in self.nodes}[node]


class Backend(Protocol):
    """Acts on nodes by their numbers; an empty list is all. Raises a PeerloomError for what it can't do."""

    def leave(self, nodes: Sequence[int]) -> None: ...
    def join(self, nodes: Sequence[int]) -> None: ...
    def set_loss(self, nodes: Sequence[int], ratio: float) -> None: ...
    def set_rate(self, nodes: Sequence[int], bits_per_s: float) -> None: ...
    def set_delay(self, nodes: Sequence[int], delay_s: float) -> None: ...
    def partition(self, sets: Sequence[Sequence[int]]) -> None: ...
    def heal(self) -> None: ...
    def stats(self) -> Stats: ...
    def close(self) -> None: ...


def open_backend(plan: Plan, its: Names) -> Backend:
    """The back end of a testbed that is up."""
    if plan.backend == "ns3":
        from peerloom.testbed.backends.ns3 import Ns3

        return Ns3(its.run_folder / "ns3.sock")
    from peerloom.testbed.backends.netem import Netem

    return Netem(plan, its)


def apply(backend: Backend, plan: Plan, action: Action) -> None:
    """Does what a step of a churn script, or a user, says. Raises NotFoundError for an unknown host."""
    nodes = _nodes(plan, action.hosts)
    match action.do:
        case "leave":
            backend.leave(nodes)
        case "join":
            backend.join(nodes)
        case "loss":
            backend.set_loss(nodes, action.value)
        case "rate":
            backend.set_rate(nodes, action.value)
        case "delay":
            backend.set_delay(nodes, action.value)
        case "partition":
            backend.partition([_nodes(plan, one) for one in action.sets])
        case "heal":
            backend.heal()
        case _:
            known = ("leave", "join", "loss", "rate", "delay", "partition", "heal")
            raise NotFoundError.of_name("action", action.do, known)


def _nodes(plan: Plan, names: Sequence[str]) -> list[int]:
    known = {host.name: host.node for host in plan.all_hosts}
    for name in names:
        if name not in known:
            raise NotFoundError.of_name("host", name, known)
    return [known[name] for name in names]
