"""Becomes a service in its container: `start.py registry|selector|trainer|node [FLAG...]`.

Three things are known only inside a running container, and are settled here: the address at which others
reach it, which of the nodes this one is, as replicas of one service share one volume, and whether it needs a
token, for which it asks the doorkeeper beside the registry (DOOR), or looks into a folder with one for each
container, by its host's name (TOKENS).
"""

import fcntl
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

MODULES = {"registry": "registry", "selector": "selector", "trainer": "trainer", "node": "node_agent"}
NODE_LIMIT = 1000
IDENTITY = "identity.pem"
LINK = Path("/tmp", IDENTITY)  # to the state folder's, for the health check
DOOR_LIMIT_S = 60.0
DOOR_PAUSE_S = 0.5
ANSWER_LIMIT_S = 15.0
END = b"-----END CERTIFICATE-----\n"


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


def ended_certificate(path: Path) -> bytes | None:
    """The certificate (PEM) of an identity that has ended, b"" where there is none; None: it needs no token.

    One that ended a while ago is taken back at the join port. The token is for who comes after those 30 days.
    """
    try:
        bundle = path.read_bytes()
    except FileNotFoundError:
        return b""
    from cryptography import x509

    begin = bundle.index(b"-----BEGIN CERTIFICATE")
    certificate = bundle[begin : bundle.index(END) + len(END)]
    ends = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    return certificate if ends < datetime.now(UTC) else None


def ask_for_token(door: Path, certificate: bytes, registry: str, limit_s: float = DOOR_LIMIT_S) -> str:
    """A token's string from the doorkeeper at that socket file, for who knows the registry as host:port.

    Waits for the doorkeeper, as services start in any order. Raises LookupError for a refusal, and when
    nobody answers in time.
    """
    deadline_s, told = time.monotonic() + limit_s, ""
    while not told:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(ANSWER_LIMIT_S)
            line.connect(str(door))
            line.sendall(certificate)
            line.shutdown(socket.SHUT_WR)
            told = b"".join(iter(lambda: line.recv(4096), b"")).decode()
        if not told and time.monotonic() > deadline_s:
            raise LookupError(f"no doorkeeper answered at {door} within {limit_s:g} s: is the registry up?")
        if not told:
            time.sleep(DOOR_PAUSE_S)
    if not told.startswith("plj"):
        raise LookupError(f"the doorkeeper gave no token: {told.removeprefix('error: ')}")
    return at_registry(told, registry)


def read_token(folder: Path, registry: str, limit_s: float = DOOR_LIMIT_S) -> str:
    """A token's string from the file that has this container's name, for who knows the registry as host:port.

    Waits for the file, as a Secret may be made after who mounts it. Raises LookupError for none, OSError.
    """
    path, deadline_s = folder / socket.gethostname(), time.monotonic() + limit_s
    while not path.exists():
        if time.monotonic() > deadline_s:
            raise LookupError(
                f"no token came to {path} within {limit_s:g} s: make one by peerloom token create"
            )
        time.sleep(DOOR_PAUSE_S)
    return at_registry(path.read_text(encoding="utf-8").strip(), registry)


def at_registry(told: str, registry: str) -> str:
    """A token's string with the registry's host as this container knows it: its maker wrote its own."""
    token, _, join_address = told.rpartition("@")
    return f"{token}@{registry.rpartition(':')[0]}:{join_address.rpartition(':')[2]}"


def settle(service: str, environment: dict[str, str]) -> None:
    """Completes the service's environment; what is set stays as it is."""
    prefix = f"PEERLOOM_{service.upper()}_"
    registry = environment.get(f"{prefix}REGISTRY", "127.0.0.1:7400")
    if service in ("selector", "trainer") and not environment.get(f"{prefix}ADVERTISE"):
        port = environment[f"{prefix}LISTEN"].rpartition(":")[2]
        environment[f"{prefix}ADVERTISE"] = f"{address_towards(registry)}:{port}"
    if service == "node" and not environment.get(f"{prefix}STATE"):
        folder = claim_folder(Path.home())
        environment[f"{prefix}STATE"] = str(folder)
        environment.setdefault(f"{prefix}NAME", folder.name)
    door, tokens = environment.get("DOOR", ""), environment.get("TOKENS", "")
    if (door or tokens) and service != "registry" and not environment.get(f"{prefix}JOIN"):
        certificate = ended_certificate(Path(environment[f"{prefix}STATE"], IDENTITY))
        if certificate is not None and tokens:
            environment[f"{prefix}JOIN"] = read_token(Path(tokens), registry)
        elif certificate is not None:
            environment[f"{prefix}JOIN"] = ask_for_token(Path(door), certificate, registry)


def main(arguments: list[str]) -> None:
    """Settles what is open and becomes the service."""
    if not arguments or arguments[0] not in MODULES:
        sys.exit(f"error: say which service to start: {', '.join(MODULES)}")
    service, *flags = arguments
    environment = dict(os.environ)
    try:
        settle(service, environment)
        LINK.unlink(missing_ok=True)
        LINK.symlink_to(Path(environment[f"PEERLOOM_{service.upper()}_STATE"], IDENTITY))
    except (OSError, LookupError, ValueError) as error:
        sys.exit(f"error: {service} can't start: {error}")
    if service == "registry" and environment.get("DOORS"):
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("doorkeeper.py")), environment["DOORS"]]
        )
    command = [sys.executable, "-m", f"peerloom.services.{MODULES[service]}", *flags]
    os.execve(sys.executable, command, environment)


if __name__ == "__main__":
    main(sys.argv[1:])
