"""Two homes behind NAT: each a namespace with a private address behind a router of its own that masquerades.

Both have the same private address, as homes do. What they dial they reach; nobody reaches them.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from free_networks import free_network

PRIVATE, _GATEWAY = "192.168.7.2", "192.168.7.1"


@dataclass(frozen=True)
class Home:
    """The namespace of its machine, and of its router, with the router's interface to the outside.

    Seen from there we are at `ours`, and it is at `theirs`.
    """

    machine: str
    router: str
    outside: str
    network: str

    @property
    def ours(self) -> str:
        return f"{self.network}.1"

    @property
    def theirs(self) -> str:
        return f"{self.network}.2"


def run(*command: str) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


@contextmanager
def two_homes() -> Iterator[tuple[Home, Home]]:
    """Both, which reach us at either's `ours`."""
    if os.geteuid() != 0:
        pytest.skip("needs root: run as root")
    if shutil.which("iptables") is None:
        pytest.skip("needs iptables: install it")
    mark = secrets.token_hex(3)
    homes: list[Home] = []
    try:
        for n in (1, 2):
            homes.append(Home(f"plm{n}-{mark}", f"plr{n}-{mark}", f"plu{n}{mark}", free_network()))
            _build(homes[-1], f"plo{n}{mark}")
        yield homes[0], homes[1]
    finally:
        for home in homes:
            for space in (home.machine, home.router):
                subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)


def _build(home: Home, interface: str) -> None:
    for space in (home.machine, home.router):
        run("ip", "netns", "add", space)
        run("ip", "-n", space, "link", "set", "lo", "up")
    run("ip", "link", "add", interface, "type", "veth", "peer", "name", home.outside, "netns", home.router)
    run("ip", "address", "add", f"{home.ours}/30", "dev", interface)
    run("ip", "link", "set", interface, "up")
    _set_up(home.router, home.outside, f"{home.theirs}/30", home.ours)
    cable = ("link", "add", "inside", "type", "veth", "peer", "name", "eth0", "netns", home.machine)
    run("ip", "-n", home.router, *cable)
    _set_up(home.router, "inside", f"{_GATEWAY}/24")
    _set_up(home.machine, "eth0", f"{PRIVATE}/24", _GATEWAY)
    run("ip", "netns", "exec", home.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    rule = ("-t", "nat", "-A", "POSTROUTING", "-o", home.outside, "-j", "MASQUERADE")
    run("ip", "netns", "exec", home.router, "iptables", *rule)


def _set_up(space: str, interface: str, address: str, gateway: str = "") -> None:
    run("ip", "-n", space, "address", "add", address, "dev", interface)
    run("ip", "-n", space, "link", "set", interface, "up")
    if gateway:
        run("ip", "-n", space, "route", "add", "default", "via", gateway)
