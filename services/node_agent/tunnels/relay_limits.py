"""What a node gives to others that can't be reached: how many, and how much."""

from dataclasses import dataclass

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_range

PORTS_OF_TUNNEL = 64
_HIGHEST_PORT = 65_535


@dataclass(frozen=True)
class RelayLimits:
    """At most so many tunnels and connections, half of them of one owner or tunnel; 0 bytes: no limit.

    `ports` are those that may be opened; empty: free ones, chosen by the system.
    """

    tunnels: int
    connections: int
    bytes_per_s: float
    ports: range

    @property
    def tunnels_of_owner(self) -> int:
        """For the nodes of one owner; without certificates, of one host."""
        return max(1, self.tunnels // 2)

    @property
    def connections_of_tunnel(self) -> int:
        """For those that wait and those that are open."""
        return max(1, self.connections // 2)


def parse_ports(text: str) -> range:
    """The ports of "7500-7600", both included; "": none. Raises InvalidArgumentError."""
    if not text:
        return range(0)
    low, _, high = text.partition("-")
    if not (low.isascii() and low.isdigit() and high.isascii() and high.isdigit()):
        raise InvalidArgumentError.of_field("relay_ports", text, "LOW-HIGH, e.g. 7500-7600")
    check_range("relay_ports", int(low), 1, _HIGHEST_PORT)
    check_range("relay_ports", int(high), int(low) + 1, _HIGHEST_PORT)
    return range(int(low), int(high) + 1)
