"""Typed peers: what a process calls, by the kind of service that answers there.

mypy knows each peer's methods, so that a misspelt method and a wrong request are found before they run.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from grpc import aio
from grpc_health.v1.health_pb2_grpc import HealthStub

from peerloom.kit.channel import Peer, open_channel
from peerloom.kit.identity import Identity
from peerloom.kit.principal import Role
from peerloom.kit.tls_probe import speaks_tls
from peerloom.v1.admission_pb2_grpc import AdmissionServiceStub
from peerloom.v1.artifact_pb2_grpc import ArtifactServiceStub
from peerloom.v1.inference_pb2_grpc import InferenceServiceStub
from peerloom.v1.node_agent_pb2_grpc import NodeAgentServiceStub
from peerloom.v1.registry_pb2_grpc import RegistryServiceStub
from peerloom.v1.selector_pb2_grpc import SelectorServiceStub
from peerloom.v1.trainer_pb2_grpc import TrainerServiceStub

if TYPE_CHECKING:  # these exist for mypy only
    from peerloom.v1.admission_pb2_grpc import AdmissionServiceAsyncStub
    from peerloom.v1.artifact_pb2_grpc import ArtifactServiceAsyncStub
    from peerloom.v1.inference_pb2_grpc import InferenceServiceAsyncStub
    from peerloom.v1.node_agent_pb2_grpc import NodeAgentServiceAsyncStub
    from peerloom.v1.registry_pb2_grpc import RegistryServiceAsyncStub
    from peerloom.v1.selector_pb2_grpc import SelectorServiceAsyncStub
    from peerloom.v1.trainer_pb2_grpc import TrainerServiceAsyncStub

S = TypeVar("S")  # a service's stub
OpenChannel: TypeAlias = Callable[[str, Identity | None, str], aio.Channel]
AdmissionPeer: TypeAlias = Peer["AdmissionServiceAsyncStub"]
ArtifactPeer: TypeAlias = Peer["ArtifactServiceAsyncStub"]
InferencePeer: TypeAlias = Peer["InferenceServiceAsyncStub"]
NodeAgentPeer: TypeAlias = Peer["NodeAgentServiceAsyncStub"]
RegistryPeer: TypeAlias = Peer["RegistryServiceAsyncStub"]
SelectorPeer: TypeAlias = Peer["SelectorServiceAsyncStub"]
TrainerPeer: TypeAlias = Peer["TrainerServiceAsyncStub"]


class Dialer:
    """Opens channels to others, all with the same identity (None: plain).

    `open_` makes a channel from host:port, identity and the name that the other's certificate has to carry;
    a simulation hands in one whose network is in memory. `probe` says whether TLS is spoken
    at an address that didn't answer in plain.
    """

    def __init__(
        self,
        identity: Identity | None = None,
        open_: OpenChannel = open_channel,
        probe: Callable[[str], Awaitable[bool]] = speaks_tls,
    ) -> None:
        self.identity = identity
        self._open, self._probe = open_, probe

    def admission(self, address: str) -> AdmissionPeer:
        """Who admits and renews: the registry at host:port."""
        return self._peer(AdmissionServiceStub, "registry", address, Role.REGISTRY)

    def artifacts(self, address: str, called: str = "node agent") -> ArtifactPeer:
        """Whoever keeps artifacts at host:port; `called` is what messages call it."""
        return self._peer(ArtifactServiceStub, called, address, "member")

    def inference(self, address: str, called: str = "inference server") -> InferencePeer:
        """An inference server at host:port; `called` is what messages call it."""
        return self._peer(InferenceServiceStub, called, address, Role.INFERENCE)

    def node_agent(self, address: str, node_id: str = "") -> NodeAgentPeer:
        """A node's agent at host:port; with `node_id` only that node's, where there are certificates."""
        kind = f"{node_id}.{Role.NODE}" if node_id else Role.NODE
        return self._peer(NodeAgentServiceStub, "node agent", address, kind)

    def registry(self, address: str) -> RegistryPeer:
        """The registry at host:port."""
        return self._peer(RegistryServiceStub, "registry", address, Role.REGISTRY)

    def selector(self, address: str) -> SelectorPeer:
        """The selector at host:port."""
        return self._peer(SelectorServiceStub, "selector", address, Role.SELECTOR)

    def trainer(self, address: str) -> TrainerPeer:
        """The trainer at host:port."""
        return self._peer(TrainerServiceStub, "trainer", address, Role.TRAINER)

    def health(self, address: str, called: str) -> Peer[HealthStub]:
        """The health of whatever serves at host:port."""
        return self._peer(HealthStub, called, address, "member")

    def _peer(self, stub: Callable[[aio.Channel], S], called: str, address: str, kind: str) -> Peer[S]:
        host_name = f"{kind}.peerloom"
        return Peer(
            stub,
            called,
            address,
            lambda: self._open(address, self.identity, host_name),
            self.identity,
            self._probe,
        )
