"""A network on which hosts have a cable each, so that one of them can be cut from everybody at once.

Each host is a network namespace on a testbed's bridge, with a name of its own: to a lease it is another
machine, on which nobody sees who died. This machine has a cable to the bridge, too. So whatever runs here,
agents, clients and a proxy before PostgreSQL, meets the hosts on that network and nowhere else.
"""

import json
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pyroute2 import IPRoute

from peerloom.testbed import Action, Testbed, namespaces, parse_plan
from peerloom.testbed.lab import index_of, set_up_interface, switch_off_offloads, with_netlink
from peerloom.testbed.names import CORE

T = TypeVar("T")
_MTU_BYTES, _PREFIX_LENGTH = 1500, 24
_NEW_HOST_NAME = 0x04000000  # what unshare(2) calls CLONE_NEWUTS
_PORT = "machine"  # the lab's end of this machine's cable


class CuttableNetwork:
    """Hosts by name on `network`, the first three numbers of an IPv4 address; a context manager.

    Entering it raises FailedPreconditionError for what the machine lacks: it needs root.
    """

    def __init__(self, hosts: Sequence[str], network: str, folder: Path) -> None:
        plan = {
            "version": 1,
            "backend": "netem",
            "door": False,
            "network": {
                "nodes": len(hosts) + 1,
                "medium": "csma",
                "rate": "1Gbps",
                "mtu": _MTU_BYTES,
                "subnet": f"{network}.0/{_PREFIX_LENGTH}",
            },
            "hosts": [{"name": name, "node": node} for node, name in enumerate(hosts, 1)],
        }
        self.ours = f"{network}.254"
        self._testbed = Testbed(parse_plan("cuttable", json.dumps(plan)), folder, system=False)

    def address(self, host: str) -> str:
        """Where a host is."""
        return self._testbed.plan.host(host).address

    def on(self, host: str, work: Callable[[], T]) -> T:
        """What `work` returns or raises; the processes that it starts are the host's."""

        def rename_and_work() -> T:
            namespaces.call("unshare", _NEW_HOST_NAME)
            socket.sethostname(host)
            return work()

        return namespaces.inside(self._testbed.names.host(host), rename_and_work)

    def cut(self, hosts: Sequence[str]) -> None:
        """From now on no packet leaves or reaches these hosts."""
        self._testbed.apply(Action("leave", tuple(hosts)))

    def mend(self, hosts: Sequence[str]) -> None:
        """They have their network again."""
        self._testbed.apply(Action("join", tuple(hosts)))

    def __enter__(self) -> "CuttableNetwork":
        self._testbed.start()
        try:
            self._join_this_machine()
        except BaseException:
            self._testbed.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._testbed.stop()  # this machine's cable goes with the lab that it ends in

    def _join_this_machine(self) -> None:
        names = self._testbed.names
        interface = f"pl-{names.token}"
        with_netlink(names.lab, lambda netlink: _lay_cable(netlink, interface))
        with IPRoute() as netlink:
            set_up_interface(netlink, interface, self.ours, _PREFIX_LENGTH)


def _lay_cable(netlink: IPRoute, interface: str) -> None:
    here = {"ifname": interface, "net_ns_pid": os.getpid(), "mtu": _MTU_BYTES}
    netlink.link("add", ifname=_PORT, kind="veth", mtu=_MTU_BYTES, peer=here)
    switch_off_offloads(_PORT)
    netlink.link("set", index=index_of(netlink, _PORT), master=index_of(netlink, CORE), state="up")
