"""Where peers reach this node, and through which network interface."""

import ipaddress
import socket
from collections.abc import Mapping, Sequence

import psutil

from peerloom.errors import ConfigurationError
from peerloom.kit.checks import check_address
from peerloom.kit.logs import get_logger
from peerloom.kit.replica_addresses import addresses_in

_log = get_logger()


def advertised_address(setting: str, listening: str, registry: str) -> str:
    """The host:port to tell others. Raises ConfigurationError when it must be given and isn't."""
    host, _, port = listening.rpartition(":")
    if setting:
        address = setting if ":" in setting.rpartition("]")[2] else f"{setting}:{port}"
        check_address("advertise", address)
        return address
    if host.strip("[]") not in ("0.0.0.0", "::", ""):
        return listening
    guessed = f"{_host_towards(registry)}:{port}"
    _log.warning("address_guessed", address=guessed, hint="set advertise if peers can't reach it")
    return guessed


def local_host(host: str) -> str:
    """Where this machine reaches what listens at `host`: at loopback if that is every address."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "[::1]", "": "127.0.0.1"}
    return everywhere.get(host, host)


def interface_of(host: str) -> str:
    """The network interface that carries `host`, e.g. "lo"; empty when none of this machine does."""
    try:
        address = socket.gethostbyname(host.strip("[]")) if ":" not in host else host.strip("[]")
    except OSError:
        return ""
    carried = {name: [entry.address for entry in entries] for name, entries in psutil.net_if_addrs().items()}
    return choose_interface(address, carried)


def choose_interface(address: str, carried: Mapping[str, Sequence[str]]) -> str:
    """The interface among `carried` (name to addresses) with this IP address; all of 127/8 is loopback."""
    wanted = "127.0.0.1" if ipaddress.ip_address(address).is_loopback and "." in address else address
    for name, addresses in carried.items():
        if wanted in (entry.partition("%")[0] for entry in addresses):
            return name
    return ""


def _host_towards(registry: str) -> str:
    host, _, port = addresses_in(registry)[0].rpartition(":")
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)  # a datagram socket: chooses a route and sends nothing
            found = str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigurationError(
            f"the node listens everywhere and there is no way to the registry {registry} ({error}) to "
            "tell its address by: give it with --advertise HOST."
        ) from error
    return f"[{found}]" if ":" in found else found
