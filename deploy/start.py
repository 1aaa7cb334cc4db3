"""Becomes a service in its container: `start.py registry|selector|trainer|node [FLAG...]`.

Two things are known only inside a running container, and are settled here: the address at which others
reach it, and, as replicas of one service share one volume, which of the nodes this one is.
"""

import fcntl
import os
import socket
import sys
from pathlib import Path

MODULES = {"registry": "registry", "selector": "selector", "trainer": "trainer", "node": "node_agent"}
NODE_LIMIT = 1000


def address_towards(registry: str) -> str:
    """The address of this container that leads to the registry (host:port). Raises OSError without a way."""
    host, _, port = registry.rpartition(":")
    family, kind, protocol, _, target = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)  # a datagram socket: chooses a route and sends nothing
        found = str(probe.getsockname()[0])
    return f"[{found}]" if ":" in found else found


def claim_folder(volume: Path) -> Path:
    """The first of volume/node-1, node-2, ... that no other running container holds.

    The claim is a file lock that this process keeps over exec and that dies with it, so a container that
    replaces another becomes the node that the other was: same key, same artifacts, same beliefs. Raises
    OSError when the volume can't be written, LookupError when all 1000 are held.
    """
    for number in range(1, NODE_LIMIT + 1):
        folder = volume / f"node-{number}"
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder / "claim", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        os.set_inheritable(descriptor, True)
        return folder
    raise LookupError(f"all {NODE_LIMIT} nodes of {volume} are in use")


def settle(service: str, environment: dict[str, str]) -> None:
    """Completes the service's environment; what is set stays as it is."""
    if service in ("selector", "trainer") and not environment.get(f"PEERLOOM_{service.upper()}_ADVERTISE"):
        prefix = f"PEERLOOM_{service.upper()}_"
        port = environment[f"{prefix}LISTEN"].rpartition(":")[2]
        registry = environment.get(f"{prefix}REGISTRY", "127.0.0.1:7400")
        environment[f"{prefix}ADVERTISE"] = f"{address_towards(registry)}:{port}"
    if service == "node" and not environment.get("PEERLOOM_NODE_STATE"):
        folder = claim_folder(Path.home())
        environment["PEERLOOM_NODE_STATE"] = str(folder)
        environment.setdefault("PEERLOOM_NODE_NAME", folder.name)


def main(arguments: list[str]) -> None:
    """Settles what is open and becomes the service."""
    if not arguments or arguments[0] not in MODULES:
        sys.exit(f"error: say which service to start: {', '.join(MODULES)}")
    service, *flags = arguments
    environment = dict(os.environ)
    try:
        settle(service, environment)
    except (OSError, LookupError) as error:
        sys.exit(f"error: {service} can't start: {error}")
    command = [sys.executable, "-m", f"peerloom.services.{MODULES[service]}", *flags]
    os.execve(sys.executable, command, environment)


if __name__ == "__main__":
    main(sys.argv[1:])
