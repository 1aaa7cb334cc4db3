"""Linux itself as the network: one bridge, each cable shaped at both ends.

Faster than ns-3 and less true: hosts don't share a medium, so of a LAN each has the whole rate to itself.
Where the kernel lacks netem, only rates are shaped; `shortcomings` says what of the plan is left out then.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import TC_H_ROOT

from peerloom.errors import FailedPreconditionError
from peerloom.testbed import names
from peerloom.testbed.backends import NodeCount, Stats
from peerloom.testbed.lab import cabled, index_of, with_netlink
from peerloom.testbed.names import HOST_INTERFACE, Names
from peerloom.testbed.plan import Link, Plan

_DISABLED, _FORWARDING = 0, 3
_QUEUE_S = 0.05
# The kernel looks at a bucket at least so often; it must hold what is due in between.
_TICK_S = 0.004


@dataclass(frozen=True)
class Shaping:
    """One queueing discipline: its kind and what pyroute2 is told."""

    kind: str
    arguments: dict[str, Any]


def shaping_of(link: Link, mtu_bytes: int, netem: bool) -> list[Shaping]:
    """What an interface is given so that it sends as a link does; without netem the rate alone."""
    frame_bytes = mtu_bytes + 14
    rate_bytes_per_s = link.rate_bits_per_s / 8
    burst_bytes = max(2 * frame_bytes, rate_bytes_per_s * _TICK_S)
    limit_bytes = burst_bytes + max(10 * frame_bytes, rate_bytes_per_s * _QUEUE_S)
    bucket = {"rate": int(rate_bytes_per_s), "burst": int(burst_bytes), "limit": int(limit_bytes)}
    if not netem or (link.delay_s < 1e-5 and not link.loss_ratio):
        return [Shaping("tbf", {"handle": "1:", **bucket})]
    in_flight = rate_bytes_per_s * link.delay_s / frame_bytes
    waiting = {
        "delay": int(link.delay_s * 1e6),
        "loss": link.loss_ratio * 100,
        "limit": int(1000 + 2 * in_flight),
    }
    return [
        Shaping("netem", {"handle": "1:", **waiting}),
        Shaping("tbf", {"handle": "10:", "parent": "1:1", **bucket}),
    ]


def up_and_down(plan: Plan, link: Link) -> tuple[Link, Link]:
    """A host's sending and receiving side: a LAN's delay is passed once, an access link's on either side."""
    if plan.network.medium == "wan":
        return link, link
    return link, Link(link.rate_bits_per_s, 0.0, 0.0)


class Netem:
    """The bridge of a testbed. Each call changes the kernel at once."""

    def __init__(self, plan: Plan, its: Names) -> None:
        self._plan, self._names = plan, its
        self._hosts = {host.node: host for host in plan.all_hosts}

    def shape_all(self) -> None:
        """Gives every cable the plan's rates, and delays and losses where the kernel can."""
        netem = self.has_netem()
        for host in self._plan.all_hosts:
            self._shape(host.node, host.link, netem)

    def shortcomings(self) -> list[str]:
        """What of the plan this kernel can't do, a sentence each."""
        links = [host.link for host in self._plan.all_hosts]
        found = []
        if any(link.delay_s >= 1e-5 or link.loss_ratio for link in links) and not self.has_netem():
            found.append("this kernel has no netem: rates are shaped, delays and losses are not")
        if self._plan.network.background_bits_per_s:
            found.append("the nodes without hosts aren't there: no background traffic")
        if self._plan.network.medium == "csma":
            found.append("hosts don't share the LAN's rate: each has it to itself")
        return found

    def has_netem(self) -> bool:
        """Whether this kernel has the netem discipline, tried on the lab's loopback."""
        return with_netlink(self._names.lab, _try_netem)

    def leave(self, nodes: Sequence[int]) -> None:
        """Takes hosts off the network: their ports pass nothing."""
        self._set_port_state(nodes, _DISABLED)

    def join(self, nodes: Sequence[int]) -> None:
        """Brings them back."""
        self._set_port_state(nodes, _FORWARDING)

    def set_loss(self, nodes: Sequence[int], ratio: float) -> None:
        """Part of the frames lost, 0 to 1. Raises FailedPreconditionError where the kernel lacks netem."""
        self._reshape(nodes, "loss", lambda link: Link(link.rate_bits_per_s, link.delay_s, ratio))

    def set_rate(self, nodes: Sequence[int], bits_per_s: float) -> None:
        """Of the hosts' cables, both ways."""
        self._reshape(nodes, "rate", lambda link: Link(bits_per_s, link.delay_s, link.loss_ratio))

    def set_delay(self, nodes: Sequence[int], delay_s: float) -> None:
        """One way. Raises FailedPreconditionError where the kernel lacks netem."""
        self._reshape(nodes, "delay", lambda link: Link(link.rate_bits_per_s, delay_s, link.loss_ratio))

    def partition(self, sets: Sequence[Sequence[int]]) -> None:
        """Nodes of different sets don't hear each other; nodes in no set hear all.

        Each set gets a bridge of its own with a cable to the core. The core's ends of these cables are
        isolated ports, which don't hear each other but all the core's other ports.
        """
        self.heal()
        mtu = self._plan.network.mtu_bytes

        def split(netlink: IPRoute) -> None:
            for number, one in enumerate(sets):
                island, near, far = f"island{number}", f"up{number}", f"down{number}"
                netlink.link("add", ifname=island, kind="bridge")
                netlink.link("add", ifname=near, kind="veth", peer={"ifname": far})
                for name in (near, far, island):
                    netlink.link("set", index=index_of(netlink, name), mtu=mtu, state="up")
                core, bridge = index_of(netlink, names.CORE), index_of(netlink, island)
                netlink.link("set", index=index_of(netlink, near), master=core)
                netlink.brport("set", index=index_of(netlink, near), isolated=1)
                netlink.link("set", index=index_of(netlink, far), master=bridge)
                for node in self._present(one):
                    netlink.link("set", index=index_of(netlink, names.port(node)), master=bridge)

        with_netlink(self._names.lab, split)

    def heal(self) -> None:
        """Ends a partition; a host that had left stays away."""

        def join(netlink: IPRoute) -> None:
            core = index_of(netlink, names.CORE)
            links = netlink.get_links()
            for node in self._hosts:
                port = index_of(netlink, names.port(node))
                if next(link for link in links if link["index"] == port).get_attr("IFLA_MASTER") != core:
                    netlink.link("set", index=port, master=core)
            for link in links:
                if link.get_attr("IFLA_IFNAME").startswith(("island", "up")):
                    netlink.link("del", index=link["index"])

        with_netlink(self._names.lab, join)

    def stats(self) -> Stats:
        """The kernel's counters of the lab's ends of the cables; nothing lags."""

        def count(netlink: IPRoute) -> tuple[NodeCount, ...]:
            links = {link.get_attr("IFLA_IFNAME"): link for link in netlink.get_links()}
            return tuple(_count(node, links[names.port(node)]) for node in sorted(self._hosts))

        return Stats(time.monotonic(), None, None, None, with_netlink(self._names.lab, count))

    def close(self) -> None:
        """Nothing is held open."""

    def _present(self, nodes: Sequence[int]) -> list[int]:
        return [node for node in nodes if node in self._hosts]

    def _set_port_state(self, nodes: Sequence[int], state: int) -> None:
        # The link is taken down, not the bridge's port disabled: so the state outlives a move of the port.
        def change(netlink: IPRoute) -> None:
            for node in self._present(nodes):
                port = index_of(netlink, names.port(node))
                netlink.link("set", index=port, state="up" if state == _FORWARDING else "down")

        with_netlink(self._names.lab, change)

    def _reshape(self, nodes: Sequence[int], what: str, changed: Any) -> None:
        netem = self.has_netem()
        if what != "rate" and not netem:
            raise FailedPreconditionError(
                f"This kernel has no netem, so the {what} can't be changed: use the back end ns3.",
                reason="NETEM_MISSING",
            )
        links = self._links()
        for node in self._present(nodes) or list(self._hosts):
            links[node] = changed(links[node])
            self._shape(node, links[node], netem)
        rows = {str(node): asdict(link) for node, link in links.items()}
        (self._names.run_folder / "links.json").write_text(json.dumps(rows))

    def _links(self) -> dict[int, Link]:
        """The links as they were last shaped, by whichever process; as planned before that."""
        try:
            rows = json.loads((self._names.run_folder / "links.json").read_text())
        except FileNotFoundError:
            return {node: host.link for node, host in self._hosts.items()}
        return {int(node): Link(**row) for node, row in rows.items()}

    def _shape(self, node: int, link: Link, netem: bool) -> None:
        up, down = up_and_down(self._plan, link)
        mtu, host = self._plan.network.mtu_bytes, self._hosts[node]
        for space, interface, side in (
            (cabled(host, self._names), HOST_INTERFACE, up),
            (self._names.lab, names.port(node), down),
        ):
            disciplines = shaping_of(side, mtu, netem)
            with_netlink(space, lambda netlink, i=interface, d=disciplines: _replace(netlink, i, d))  # type: ignore[misc]  # mypy can't infer a lambda with defaults


def _replace(netlink: IPRoute, interface: str, disciplines: list[Shaping]) -> None:
    index = index_of(netlink, interface)
    for number, shaping in enumerate(disciplines):
        netlink.tc("add" if number else "replace", shaping.kind, index, **shaping.arguments)


def unshape(netlink: IPRoute, interface: str) -> None:
    """Takes all disciplines off an interface: it sends as fast as the kernel can."""
    netlink.tc("del", index=index_of(netlink, interface), parent=TC_H_ROOT)


def _try_netem(netlink: IPRoute) -> bool:
    loopback = index_of(netlink, "lo")
    try:
        netlink.tc("add", "netem", loopback, handle="1:", delay=1000)
    except NetlinkError:
        return False
    unshape(netlink, "lo")
    return True


def _count(node: int, link: Any) -> NodeCount:
    passed = link.get_attr("IFLA_STATS64")
    return NodeCount(
        node=node,
        up=link.get_attr("IFLA_OPERSTATE") == "UP",
        sent_bytes=passed["rx_bytes"],
        sent_packets=passed["rx_packets"],
        received_bytes=passed["tx_bytes"],
        received_packets=passed["tx_packets"],
        dropped_packets=passed["rx_dropped"] + passed["tx_dropped"],
    )
