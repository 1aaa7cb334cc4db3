"""A host behind NAT, as in a home: a router of its own has the host's place on the network, and masquerades.

What the host dials it reaches; nobody reaches it. All homes have the same private addresses, as homes do.
"""

import subprocess

from pyroute2 import IPRoute

from peerloom.errors import FailedPreconditionError
from peerloom.testbed import namespaces
from peerloom.testbed.lab import set_up_interface, with_netlink, write_setting
from peerloom.testbed.names import HOME_INTERFACE, HOST_INTERFACE, Names
from peerloom.testbed.plan import HOME_ADDRESS, HOME_GATEWAY, HOME_NETWORK, Host, Plan

_MASQUERADE = ("iptables", "-w", "-t", "nat", "-A", "POSTROUTING", "-o", HOST_INTERFACE, "-j", "MASQUERADE")


def build_home(plan: Plan, its: Names, host: Host) -> None:
    """Lays the cable from the host to its router, whose own to the network is there, and turns NAT on.

    Raises FailedPreconditionError when the kernel or iptables refuses.
    """
    mtu, length = plan.network.mtu_bytes, int(HOME_NETWORK.partition("/")[2])
    with_netlink(its.router(host.name), lambda netlink: _lay_cable(netlink, its.host(host.name), mtu))

    def set_up_host(netlink: IPRoute) -> None:
        set_up_interface(netlink, HOST_INTERFACE, HOME_ADDRESS, length)
        netlink.route("add", dst="default", gateway=HOME_GATEWAY)

    router = its.router(host.name)
    with_netlink(router, lambda netlink: set_up_interface(netlink, HOME_INTERFACE, HOME_GATEWAY, length))
    with_netlink(its.host(host.name), set_up_host)
    namespaces.inside(router, _masquerade)


def _lay_cable(netlink: IPRoute, host: str, mtu: int) -> None:
    far_end = {"ifname": HOST_INTERFACE, "net_ns_fd": str(namespaces.path_of(host)), "mtu": mtu}
    netlink.link("add", ifname=HOME_INTERFACE, kind="veth", mtu=mtu, peer=far_end)


def _masquerade() -> None:
    write_setting("ipv4/ip_forward", "1")
    done = subprocess.run(_MASQUERADE, capture_output=True, text=True)
    if done.returncode:
        raise FailedPreconditionError(
            f"iptables can't set up NAT for a host: {done.stderr.strip()}", reason="NAT_REFUSED"
        )
