"""Whether a node is reached where it says, found by dialling it; and who passes connections on if not."""

import random
from collections.abc import Iterable

from peerloom.errors import PeerloomError
from peerloom.kit.call_limits import CallSlots
from peerloom.kit.dialing import Dialer
from peerloom.kit.principal import Principal
from peerloom.services.registry.membership.node_records import NodeRecord
from peerloom.v1.node_agent_pb2 import HandshakeRequest
from peerloom.v1.registry_pb2 import NODE_STATE_ALIVE, RelayOffer

DIAL_S = 3.0
OFFERS = 8
# Each takes a socket of ours for up to 3 s; a node asks when it starts, and then every few minutes.
CHECKS, CHECKS_OF_HOST = 128, 64


class ReachabilityCheck:
    """Dials nodes back. Who answers must prove that it is the node that asked, by its certificate.

    Another machine may have the same address in the registry's network: private ones are everywhere. Where
    nobody has certificates, its name must do.
    """

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._slots = CallSlots("checks of reachability", CHECKS, CHECKS_OF_HOST)

    async def why_not(self, caller: Principal | None, peer: str, name: str, address: str) -> str:
        """Why a node isn't reached at host:port; "" if it is. `peer` is who asks, as gRPC names it.

        Raises ResourceExhaustedError when too many ask at once.
        """
        with self._slots.taken_by(peer):
            async with self._dialer.node_agent(address, caller.id if caller is not None else "") as agent:
                try:
                    answer = await agent.call(
                        agent.stub.Handshake, HandshakeRequest(caller="registry"), DIAL_S
                    )
                except PeerloomError:
                    # Not what happened: that would tell a node about machines near the registry.
                    return f"The registry doesn't reach {name} at {address}."
        if answer.name != name:
            return f"Another machine answers the registry at {address}."
        return ""


def relay_offers(
    relays: Iterable[NodeRecord], name: str, owner: str, chance: random.Random
) -> list[RelayOffer]:
    """At most 8 of the nodes that pass connections on to the node `name`: first its owner's, then by chance.

    Only those that are alive and reached directly: a chain of relays would cost each byte once more.
    """
    fit = [one for one in relays if one.state == NODE_STATE_ALIVE and not one.spec.via and one.name != name]
    own = [one for one in fit if owner and one.spec.owner == owner]
    others = [one for one in fit if not owner or one.spec.owner != owner]
    chosen = [*chance.sample(own, len(own)), *chance.sample(others, len(others))][:OFFERS]
    return [RelayOffer(name=one.name, address=one.spec.address, node_id=one.node_id) for one in chosen]
