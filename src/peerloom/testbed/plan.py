"""What a testbed is: the values that its file gives, checked, with all defaults filled in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

BackendName = Literal["ns3", "netem"]
Isolation = Literal["namespace", "container"]
CONTROL = "control"
# Of a host behind NAT and its router, the same for all, as in homes.
HOME_NETWORK, HOME_ADDRESS, HOME_GATEWAY = "192.168.7.0/24", "192.168.7.2", "192.168.7.1"


@dataclass(frozen=True)
class Link:
    """How a node meets the network: bits a second, seconds one way, part of the frames that is lost."""

    rate_bits_per_s: float
    delay_s: float
    loss_ratio: float


@dataclass(frozen=True)
class Network:
    """The emulated network; `default_link` is the LAN itself for csma, each access link for wan.

    `congestion_control` is of all hosts' TCP, by the kernel's name of it.
    """

    nodes: int
    medium: Literal["csma", "wan"]
    default_link: Link
    mtu_bytes: int
    background_bits_per_s: float
    subnet: str
    seed: int
    congestion_control: str

    @property
    def prefix_length(self) -> int:
        """Of the subnet, e.g. 24."""
        return int(self.subnet.partition("/")[2])


@dataclass(frozen=True)
class Host:
    """One machine on the network: an agent's, or that of the control plane (named "control", no slots).

    With `nat` it is its router's address that stands on the network; a `relay` passes connections on to such.
    """

    name: str
    node: int
    address: str
    mac: str
    slots: int
    isolation: Isolation
    link: Link
    nat: bool = False
    relay: bool = False

    @property
    def own_address(self) -> str:
        """The address of its own interface."""
        return HOME_ADDRESS if self.nat else self.address


@dataclass(frozen=True)
class ContainerPlan:
    """What every container is given, and its limits; `mounts` are (here, there), read-only."""

    image: str = "peerloom-node:latest"
    python: str = "python"
    memory_bytes: int = 4_000_000_000
    pids: int = 512
    gpus: int = 0
    mounts: tuple[tuple[str, str], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Action:
    """One change of the network; `value` is of loss a ratio, of rate bits a second, of delay seconds."""

    do: str
    hosts: tuple[str, ...] = ()
    value: float = 0.0
    sets: tuple[tuple[str, ...], ...] = ()

    def __str__(self) -> str:
        if self.do == "partition":
            return f"partition {' | '.join(','.join(one) for one in self.sets)}"
        parts = [
            self.do,
            ",".join(self.hosts),
            f"{self.value:g}" if self.do in ("loss", "rate", "delay") else "",
        ]
        return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class TimedAction:
    """An action, `at_s` seconds after all hosts were up."""

    at_s: float
    action: Action


@dataclass(frozen=True)
class RandomSessions:
    """Hosts that leave and join by chance: exponential times with these means, in seconds, repeatable."""

    hosts: tuple[str, ...]
    online_s: float
    offline_s: float
    until_s: float
    seed: int


@dataclass(frozen=True)
class Plan:
    """A whole testbed; without a `door` all of it is plain."""

    name: str
    backend: BackendName
    door: bool
    network: Network
    control: Host
    hosts: tuple[Host, ...]
    containers: ContainerPlan
    settings: Mapping[str, Mapping[str, str]]
    script: tuple[TimedAction, ...]
    sessions: RandomSessions | None
    faithful_lag_s: float
    source: str
    text: str

    @property
    def all_hosts(self) -> tuple[Host, ...]:
        """The control plane's host first, then the agents'."""
        return (self.control, *self.hosts)

    def host(self, name: str) -> Host:
        """By name. Raises KeyError."""
        return {host.name: host for host in self.all_hosts}[name]
