"""The lab: one namespace that holds every bridge, tap and cable of a testbed.

A host's own interface is the only thing that leaves it. The machine's namespace is never touched, and with
the lab's namespace all that is in it goes.
"""

import ctypes
import fcntl
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from peerloom.errors import FailedPreconditionError
from peerloom.testbed import names, namespaces
from peerloom.testbed.names import HOST_INTERFACE, Names
from peerloom.testbed.plan import Host, Plan

T = TypeVar("T")
_TCP = "/proc/sys/net/ipv4"
_ETHTOOL = 0x8946
# Checksums, scatter-gather, and the joining and cutting of segments: what a cable of 1500 bytes can't have.
_OFFLOADS_OFF = {"tx": 0x17, "rx": 0x15, "sg": 0x19, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}


def build_lab(plan: Plan, its: Names) -> None:
    """Makes the cables of all hosts, whose namespaces must be there; taps and bridges only for ns-3."""
    with_netlink(its.lab, lambda netlink: _build(netlink, plan, its))
    for host in plan.all_hosts:
        with_netlink(cabled(host, its), lambda netlink, host=host: _set_up_host(netlink, plan, host))  # type: ignore[misc]  # mypy can't infer a lambda with a default
        namespaces.inside(its.host(host.name), lambda: _set_up_tcp(plan.network.congestion_control))


def cabled(host: Host, its: Names) -> str:
    """The namespace that a host's cable leads to: its own, or its router's."""
    return its.router(host.name) if host.nat else its.host(host.name)


def with_netlink(namespace: str, work: Callable[[IPRoute], T]) -> T:
    """What `work` returns, called with the links of a namespace. The kernel's refusals become our errors."""

    def run() -> T:
        with IPRoute() as netlink:
            return work(netlink)

    try:
        return namespaces.inside(namespace, run)
    except NetlinkError as error:
        raise FailedPreconditionError(
            f"The kernel refused to change the network of {namespace}: {error.args[1]}.",
            reason="LINK_REFUSED",
        ) from error


def index_of(netlink: IPRoute, name: str) -> int:
    """An interface's number."""
    found = netlink.link_lookup(ifname=name)
    if not found:
        raise FailedPreconditionError(f"The lab lacks the interface {name}: is the testbed up?")
    return int(found[0])


def write_setting(path: str, value: str) -> None:
    """One of /proc/sys/net, which shows the namespace of the thread that looks; passes over absent ones."""
    with suppress(FileNotFoundError):
        Path("/proc/sys/net", path).write_text(value)


def _build(netlink: IPRoute, plan: Plan, its: Names) -> None:
    _quieten()
    if plan.backend == "netem":
        _add_bridge(netlink, names.CORE, plan.network.mtu_bytes)
    for host in plan.all_hosts:
        _add_cable(netlink, plan, host, its)


def _quieten() -> None:
    # Else the kernel's own neighbour discovery runs through the emulated network, and Docker, which turns
    # filtering of bridged frames on for all, drops ours.
    for which in ("all", "default"):
        write_setting(f"ipv6/conf/{which}/disable_ipv6", "1")
    for family in ("iptables", "ip6tables", "arptables"):
        write_setting(f"bridge/bridge-nf-call-{family}", "0")


def _add_cable(netlink: IPRoute, plan: Plan, host: Host, its: Names) -> None:
    mtu, port = plan.network.mtu_bytes, names.port(host.node)
    _make(netlink, mtu, port, kind="veth", peer=_far_end(host, its))
    switch_off_offloads(port)
    if plan.backend == "netem":
        master = index_of(netlink, names.CORE)
    else:
        _make(netlink, mtu, names.tap(host.node), kind="tuntap", mode="tap")
        _add_bridge(netlink, names.bridge(host.node), mtu)
        master = index_of(netlink, names.bridge(host.node))
        netlink.link("set", index=index_of(netlink, names.tap(host.node)), master=master, state="up")
    netlink.link("set", index=index_of(netlink, port), master=master, state="up")


def _far_end(host: Host, its: Names) -> dict[str, Any]:
    where = str(namespaces.path_of(cabled(host, its)))
    return {"ifname": HOST_INTERFACE, "address": host.mac, "net_ns_fd": where}


def _add_bridge(netlink: IPRoute, name: str, mtu: int) -> None:
    _make(netlink, mtu, name, kind="bridge")
    netlink.link("set", index=index_of(netlink, name), state="up")


def _make(netlink: IPRoute, mtu: int, name: str, **what: Any) -> None:
    netlink.link("add", ifname=name, **what)
    _set_mtu(netlink, name, mtu)


def _set_mtu(netlink: IPRoute, name: str, mtu: int) -> None:
    try:
        netlink.link("set", index=index_of(netlink, name), mtu=mtu)
    except NetlinkError as error:
        raise FailedPreconditionError(
            f"The interface {name} refuses an MTU of {mtu} ({error.args[1]}): choose a smaller network.mtu.",
            reason="MTU_REFUSED",
        ) from error


def _set_up_host(netlink: IPRoute, plan: Plan, host: Host) -> None:
    for which in ("all", "default"):
        write_setting(f"ipv6/conf/{which}/disable_ipv6", "1")
    _set_mtu(netlink, HOST_INTERFACE, plan.network.mtu_bytes)
    set_up_interface(netlink, HOST_INTERFACE, host.address, plan.network.prefix_length)


def _set_up_tcp(congestion_control: str) -> None:
    """What a host's connections do, whatever this machine's own do.

    Workers exchange in bursts, with pauses in which the kernel would forget how much a path holds.
    """
    write_setting("ipv4/tcp_slow_start_after_idle", "0")
    try:
        Path(_TCP, "tcp_congestion_control").write_text(congestion_control)
    except OSError as error:  # one that isn't there is a file that isn't there, says the kernel
        allowed = Path(_TCP, "tcp_allowed_congestion_control").read_text().strip()
        raise FailedPreconditionError(
            f"The kernel refuses network.congestion_control {congestion_control} ({error.strerror}): it lets "
            f"hosts use {allowed.replace(' ', ', ')}. For another load its module, and name it in the "
            "machine's sysctl net.ipv4.tcp_allowed_congestion_control.",
            reason="CONGESTION_CONTROL_REFUSED",
        ) from error


def set_up_interface(netlink: IPRoute, name: str, address: str, prefix_length: int) -> None:
    """Gives an interface, in the thread's namespace, its address, and turns it on with loopback."""
    switch_off_offloads(name)
    interface = index_of(netlink, name)
    netlink.addr("add", index=interface, address=address, prefixlen=prefix_length)
    for index in (index_of(netlink, "lo"), interface):
        netlink.link("set", index=index, state="up")


def switch_off_offloads(interface: str) -> None:
    """Makes the kernel send only whole frames that fit the cable; in the thread's namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        for command in _OFFLOADS_OFF.values():
            _ethtool(line, interface, command)


def _ethtool(line: socket.socket, interface: str, command: int) -> None:
    value = bytearray(struct.pack("II", command, 0))
    address = ctypes.addressof(ctypes.c_char.from_buffer(value))
    with suppress(OSError):  # a feature that a kind of interface doesn't have is off
        fcntl.ioctl(line, _ETHTOOL, struct.pack("16sP16x", interface.encode(), address))


def interfaces(namespace: str) -> Sequence[str]:
    """The names of all interfaces in a namespace."""
    return with_netlink(
        namespace, lambda netlink: [link.get_attr("IFLA_IFNAME") for link in netlink.get_links()]
    )
