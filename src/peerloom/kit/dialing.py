"""Typed peers: what a process calls, by the kind of service that answers there.

mypy knows each peer's methods, so that a misspelt method and a wrong request are found before they run.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from grpc import aio
from grpc_health.v1.health_pb2_grpc import HealthStub

from peerloom.kit.channel import Peer, open_channel
from peerloom.v1.artifact_pb2_grpc import ArtifactServiceStub
from peerloom.v1.inference_pb2_grpc import InferenceServiceStub
from peerloom.v1.node_agent_pb2_grpc import NodeAgentServiceStub
from peerloom.v1.registry_pb2_grpc import RegistryServiceStub
from peerloom.v1.selector_pb2_grpc import SelectorServiceStub
from peerloom.v1.trainer_pb2_grpc import TrainerServiceStub

if TYPE_CHECKING:  # these exist for mypy only
    from peerloom.v1.artifact_pb2_grpc import ArtifactServiceAsyncStub
    from peerloom.v1.inference_pb2_grpc import InferenceServiceAsyncStub
    from peerloom.v1.node_agent_pb2_grpc import NodeAgentServiceAsyncStub
    from peerloom.v1.registry_pb2_grpc import RegistryServiceAsyncStub
    from peerloom.v1.selector_pb2_grpc import SelectorServiceAsyncStub
    from peerloom.v1.trainer_pb2_grpc import TrainerServiceAsyncStub

ArtifactPeer: TypeAlias = Peer["ArtifactServiceAsyncStub"]
InferencePeer: TypeAlias = Peer["InferenceServiceAsyncStub"]
NodeAgentPeer: TypeAlias = Peer["NodeAgentServiceAsyncStub"]
RegistryPeer: TypeAlias = Peer["RegistryServiceAsyncStub"]
SelectorPeer: TypeAlias = Peer["SelectorServiceAsyncStub"]
TrainerPeer: TypeAlias = Peer["TrainerServiceAsyncStub"]


class Dialer:
    """Opens channels to others, all with the same CA file (PEM; "": plain).

    `open_` makes a channel to host:port; a simulation hands in one whose network is in memory.
    """

    def __init__(self, tls_ca: str = "", open_: Callable[[str, str], aio.Channel] = open_channel) -> None:
        self.tls_ca = tls_ca
        self._open = open_

    def artifacts(self, address: str, called: str = "node agent") -> ArtifactPeer:
        """Whoever keeps artifacts at host:port; `called` is what messages call it."""
        return Peer(ArtifactServiceStub, called, address, self._channel(address))

    def inference(self, address: str, called: str = "inference server") -> InferencePeer:
        """An inference server at host:port; `called` is what messages call it."""
        return Peer(InferenceServiceStub, called, address, self._channel(address))

    def node_agent(self, address: str) -> NodeAgentPeer:
        """A node's agent at host:port."""
        return Peer(NodeAgentServiceStub, "node agent", address, self._channel(address))

    def registry(self, address: str) -> RegistryPeer:
        """The registry at host:port."""
        return Peer(RegistryServiceStub, "registry", address, self._channel(address))

    def selector(self, address: str) -> SelectorPeer:
        """The selector at host:port."""
        return Peer(SelectorServiceStub, "selector", address, self._channel(address))

    def trainer(self, address: str) -> TrainerPeer:
        """The trainer at host:port."""
        return Peer(TrainerServiceStub, "trainer", address, self._channel(address))

    def health(self, address: str, called: str) -> Peer[HealthStub]:
        """The health of whatever serves at host:port."""
        return Peer(HealthStub, called, address, self._channel(address))

    def _channel(self, address: str) -> aio.Channel:
        return self._open(address, self.tls_ca)
