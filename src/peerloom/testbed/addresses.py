"""Who has which address, and that nobody has another's."""

import ipaddress

from peerloom.testbed.documents import Document, Path
from peerloom.testbed.plan import CONTROL, Network

FIRST_HOST_OFFSET = 10


def mac_of(node: int) -> str:
    """The fixed hardware address of a node: locally administered, the node's number at its end."""
    return f"02:70:6c:00:{node >> 8:02x}:{node & 255:02x}"


class AddressBook:
    """What is taken so far; each `take_…` raises ConfigurationError with the line of the second taker."""

    def __init__(self, document: Document, network: Network) -> None:
        self._document = document
        self._network = network
        try:
            self._subnet = ipaddress.IPv4Network(network.subnet)
        except ValueError as error:
            raise document.fail(("network", "subnet"), f"network.subnet is no network: {error}.") from None
        if self._subnet.prefixlen > 30 or not self._subnet.is_private or self._subnet.is_loopback:
            limit = "a private network of /30 or larger, such as 10.77.0.0/24"
            raise document.fail(
                ("network", "subnet"), f"network.subnet is {network.subnet!r}, but must be {limit}."
            )
        self._taken: dict[str, str] = {}

    def first(self) -> str:
        """The subnet's first address."""
        return str(self._subnet[1])

    def of_node(self, node: int, where: Path) -> str:
        """The default address of a node."""
        offset = FIRST_HOST_OFFSET + node
        if offset >= self._subnet.num_addresses - 1:
            message = f"the subnet {self._subnet} has no default address for node {node}: give one (address)."
            raise self._document.fail(where, message)
        return str(self._subnet[offset])

    def take_name(self, name: str, where: Path) -> None:
        """A host's name; "control" is taken."""
        self._take(f"name {name}", "another host", where)

    def take_node(self, node: int, host: str, where: Path) -> None:
        """A host's node, which must be one of the network's."""
        if node >= self._network.nodes:
            message = (
                f"{host} is at node {node}, but the network has the nodes 0 to {self._network.nodes - 1} "
                "(network.nodes): without a node there it has no network."
            )
            raise self._document.fail((*where, "node"), message)
        self._take(f"node {node}", host, (*where, "node"))

    def take_address(self, address: str, host: str, where: Path) -> None:
        """A host's address, one of the subnet's."""
        try:
            parsed = ipaddress.IPv4Address(address)
        except ValueError:
            raise self._document.fail((*where, "address"), f"{address!r} is no IPv4 address.") from None
        if parsed not in self._subnet:
            message = f"the address {address} of {host} is outside of the subnet {self._subnet}."
            raise self._document.fail((*where, "address"), message)
        if parsed in (self._subnet.network_address, self._subnet.broadcast_address):
            message = f"the address {address} of {host} is the subnet's own or its broadcast address."
            raise self._document.fail((*where, "address"), message)
        self._take(f"address {parsed}", host, (*where, "address"))

    def take_mac(self, mac: str, host: str, where: Path) -> None:
        """A host's hardware address."""
        first = int(mac[:2], 16)
        if first & 1 or mac == "00:00:00:00:00:00":
            message = f"the mac {mac} of {host} is no single device's: its first byte must be even."
            raise self._document.fail((*where, "mac"), message)
        self._take(f"mac {mac}", host, (*where, "mac"))

    def _take(self, what: str, host: str, where: Path) -> None:
        if what == f"name {CONTROL}":
            raise self._document.fail(where, f"the name {CONTROL!r} is the control plane's.")
        if what in self._taken:
            raise self._document.fail(where, f"{what} is taken already, by {self._taken[what]}.")
        self._taken[what] = host
