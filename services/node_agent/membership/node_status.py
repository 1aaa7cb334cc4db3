"""What changes about this node: one record, which the agent's parts read and change by verbs."""

import asyncio

from peerloom.v1.common_pb2 import MachineSpeed
from peerloom.v1.registry_pb2 import MachineLoad


class NodeStatus:
    """The node's id, where it is reached, whether it is drained, why its owner lends nothing, how fast it is
    and how busy.

    Each verb sets the event of whoever has to act on the change: `beat_due`, so that the registry hears of it
    before the next heartbeat is due, and `policy_due`, so that the owner's policy is applied at once.
    """

    def __init__(self) -> None:
        self._node_id = ""
        self._is_draining = False
        self._withheld = ""
        self._speed = MachineSpeed()
        self._load: MachineLoad | None = None
        self._address = self._via = ""
        self.beat_due = asyncio.Event()
        self.policy_due = asyncio.Event()

    @property
    def node_id(self) -> str:
        """The id that the registry gave; empty before the first registration."""
        return self._node_id

    @property
    def is_draining(self) -> bool:
        """Whether the registry said that this node is being drained."""
        return self._is_draining

    @property
    def withheld(self) -> str:
        """Why the owner lends nothing; empty while the machine is lent."""
        return self._withheld

    @property
    def speed(self) -> MachineSpeed:
        """What was measured last; another object after each measurement."""
        return self._speed

    @property
    def load(self) -> MachineLoad | None:
        """How busy the machine was at the last look; another object after each, None before the first."""
        return self._load

    @property
    def address(self) -> str:
        """Where others reach this node, host:port; empty before that was looked into."""
        return self._address

    @property
    def via(self) -> str:
        """Through which node others reach this one; empty: directly."""
        return self._via

    def note_way_in(self, address: str, via: str) -> None:
        """Others reach this node at `address`, through the node `via` ("": directly)."""
        if (address, via) != (self._address, self._via):
            self._address, self._via = address, via
            self.beat_due.set()

    def note_registered(self, node_id: str) -> None:
        """The registry knows this node by `node_id`."""
        self._node_id = node_id

    def note_draining(self, is_draining: bool) -> None:
        """A heartbeat's answer said whether the node is being drained."""
        if is_draining != self._is_draining:
            self._is_draining = is_draining
            self.policy_due.set()

    def note_withheld(self, reason: str) -> None:
        """The owner's policy withholds the machine for this reason; "" lends it."""
        self._withheld = reason
        self.beat_due.set()

    def note_speed(self, speed: MachineSpeed) -> None:
        """The machine was measured."""
        self._speed = speed
        self.beat_due.set()

    def note_load(self, load: MachineLoad) -> None:
        """The machine was looked at; the next heartbeat tells it, which comes no sooner for that."""
        self._load = load
