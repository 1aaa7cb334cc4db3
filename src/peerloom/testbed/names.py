"""What a testbed's things are called, so that they can be found again by name alone."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

RUN_FOLDER = Path("/run/peerloom/testbeds")
NAMESPACE_FOLDER = Path("/run/netns")


@dataclass(frozen=True)
class Names:
    """All names of one testbed. `token` is 8 hexadecimal digits, always the same for one state folder."""

    token: str

    @classmethod
    def of_state(cls, state: Path) -> "Names":
        """Those of the testbed on a state folder."""
        return cls(hashlib.sha256(str(state.expanduser().absolute()).encode()).hexdigest()[:8])

    @property
    def run_folder(self) -> Path:
        """Where its record and its sockets lie: short, since a socket's path may have 107 characters only."""
        return RUN_FOLDER / self.token

    @property
    def lab(self) -> str:
        """The namespace of all bridges and taps, and of ns-3."""
        return f"peerloom-{self.token}-lab"

    def host(self, name: str) -> str:
        """A host's namespace."""
        return f"peerloom-{self.token}-{name}"

    def router(self, name: str) -> str:
        """The namespace of the router of a host behind NAT."""
        return f"peerloom-{self.token}-{name}-nat"

    def container(self, name: str) -> str:
        """A host's container, in which its agent runs."""
        return f"peerloom-{self.token}-{name}"

    def anchor(self, name: str) -> str:
        """The container that holds a host's network, whatever becomes of its agent."""
        return f"peerloom-{self.token}-{name}-net"


# Names of interfaces: each lab has a namespace of its own, so they need not differ between testbeds.
def tap(node: int) -> str:
    """Between the bridge and ns-3."""
    return f"tap{node}"


def bridge(node: int) -> str:
    """Of a node; joins its tap and its host."""
    return f"br{node}"


def port(node: int) -> str:
    """The lab's end of the cable to a host."""
    return f"port{node}"


HOST_INTERFACE = "eth0"
HOME_INTERFACE = "home0"  # a router's, towards the host behind it
CORE = "core"  # the one bridge of a testbed without ns-3
