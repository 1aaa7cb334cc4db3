"""Asks a system's processes how they are."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from peerloom.kit.channel import UNSHARED
from peerloom.kit.identity import Identity
from peerloom.v1.registry_pb2 import (
    ListNodesRequest,
    ListServicesRequest,
    Node,
    NodeState,
    ServiceEndpoint,
    ServiceKind,
)
from peerloom.v1.registry_pb2_grpc import RegistryServiceStub
from peerloom.v1.selector_pb2 import SelectNodesRequest
from peerloom.v1.selector_pb2_grpc import SelectorServiceStub

_ANSWER_S = 2.0
_KINDS = {"selector": ServiceKind.SERVICE_KIND_SELECTOR, "trainer": ServiceKind.SERVICE_KIND_TRAINER}


class Prober:
    """One channel to each address asked so far; a context manager that closes them.

    `identity` is the file of who asks, which its owner renews in place; without one all is plain.
    """

    def __init__(self, identity: Path | None = None) -> None:
        self._identity = Identity(identity) if identity else None
        self._channels: dict[str, grpc.Channel] = {}

    def health(self, address: str) -> str:
        """SERVING, NOT_SERVING, or UNREACHABLE."""
        stub = health_pb2_grpc.HealthStub(self.channel(address))
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=_ANSWER_S)
        except grpc.RpcError:
            return "UNREACHABLE"
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

    def nodes(self, registry: str) -> list[Node]:
        """The nodes that the registry knows; none when it doesn't answer."""
        stub = RegistryServiceStub(self.channel(registry))
        try:
            return list(stub.ListNodes(ListNodesRequest(page_size=1000), timeout=_ANSWER_S).nodes)
        except grpc.RpcError:
            return []

    def services(self, registry: str) -> list[ServiceEndpoint]:
        """The services that announced themselves; none when the registry doesn't answer."""
        stub = RegistryServiceStub(self.channel(registry))
        try:
            return list(stub.ListServices(ListServicesRequest(), timeout=_ANSWER_S).services)
        except grpc.RpcError:
            return []

    def selectable(self, selector: str) -> set[str]:
        """Addresses of the nodes that the selector would choose from; none when it doesn't answer."""
        stub = SelectorServiceStub(self.channel(selector))
        try:
            answer = stub.SelectNodes(SelectNodesRequest(request_budget=1000), timeout=_ANSWER_S)
        except grpc.RpcError:
            return set()
        return {node.address for node in answer.nodes}

    def channel(self, address: str) -> grpc.Channel:
        """The one to that address."""
        if self._identity and time.time() > self._identity.current.renewal_s and self._identity.reload():
            self._channels = {}  # others may be asking over these still: they close when they are let go
        if address not in self._channels:
            options = [("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 500), *UNSHARED]
            self._channels[address] = self._open(address, options)
        return self._channels[address]

    def _open(self, address: str, options: list[tuple[str, int]]) -> grpc.Channel:
        if self._identity is None:
            return grpc.insecure_channel(address, options=options)
        named = [*options, ("grpc.ssl_target_name_override", "member.peerloom")]
        return grpc.secure_channel(address, self._identity.channel_credentials(), options=named)

    def __enter__(self) -> "Prober":
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels.values():
            channel.close()


@dataclass(frozen=True)
class Seen:
    """What was seen of a system at one time; `selectable` is None where there is no selector."""

    unhealthy: tuple[str, ...]
    nodes: tuple[Node, ...]
    services: tuple[ServiceEndpoint, ...]
    selectable: set[str] | None


def not_ready(addresses: Mapping[str, str], seen: Seen) -> list[str]:
    """What is still missing, a phrase each; empty when the system is ready.

    `addresses` are host:port by process name. A node counts when the registry holds it alive at the address
    it has in this run, since a node of an earlier run may still be in the list; and when the selector would
    choose from it, or it is draining, which it may still be from an earlier run.
    """
    alive = {n.spec.address for n in seen.nodes if n.state == NodeState.NODE_STATE_ALIVE}
    draining = {n.spec.address for n in seen.nodes if n.draining}
    announced = {(s.kind, s.address) for s in seen.services}
    missing = [f"{name} is not healthy" for name in seen.unhealthy]
    for name, address in addresses.items():
        if name in _KINDS and (_KINDS[name], address) not in announced:
            missing.append(f"{name} is not announced")
        if not name.startswith("node-"):
            continue
        if address not in alive:
            missing.append(f"{name} is not registered")
        elif seen.selectable is not None and address not in seen.selectable | draining:
            missing.append(f"{name} is not known to the selector")
    return missing
