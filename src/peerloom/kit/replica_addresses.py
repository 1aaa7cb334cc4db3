"""Addresses of one service that has standbys, `a:7400,b:7400`, and what gRPC makes of them.

gRPC's own resolvers take several addresses only as numbers, so names among them are looked up here.
"""

import socket

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_address
from peerloom.kit.logs import get_logger

MAX_REPLICAS = 8
_SCHEMES = {socket.AF_INET: "ipv4", socket.AF_INET6: "ipv6"}
_log = get_logger()


def check_addresses(field: str, value: str) -> None:
    """Raises InvalidArgumentError unless the text is host:port, or up to 8 different ones with commas."""
    several = addresses_in(value)
    if len(several) > MAX_REPLICAS:
        raise InvalidArgumentError.of_field(field, f"{len(several)} addresses", f"at most {MAX_REPLICAS}")
    for address in several:
        check_address(field, address)
        if several.count(address) > 1:
            limit = "different addresses, with commas between them"
            raise InvalidArgumentError.of_field(field, value[:80], limit)


def addresses_in(value: str) -> tuple[str, ...]:
    """Each host:port of a text that has commas between them."""
    return tuple(address.strip() for address in value.split(","))


def target_of(value: str) -> str:
    """What gRPC dials for one address or several; those of one family only, IPv4 if both have as many.

    Blocks while names are looked up; an address that isn't found is left out, and if none is, gRPC itself
    looks for the first and tells what is wrong with it.
    """
    several = addresses_in(value)
    if len(several) == 1:
        return several[0]
    found = {family: list[str]() for family in _SCHEMES}
    for address in several:
        for family, place in _look_up(address).items():
            found[family].append(place)
    family = max(found, key=lambda each: len(found[each]))
    return f"{_SCHEMES[family]}:{','.join(found[family])}" if found[family] else several[0]


def _look_up(address: str) -> dict[socket.AddressFamily, str]:
    """The address in numbers, by family."""
    host, _, port = address.rpartition(":")
    try:
        entries = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        _log.warning("replica_not_found", address=address, reason=str(error))
        return {}
    places = dict[socket.AddressFamily, str]()
    for family, _, _, _, place in entries:
        if family in _SCHEMES:
            number = f"[{place[0]}]" if family == socket.AF_INET6 else place[0]
            places.setdefault(family, f"{number}:{port}")
    return places
