"""What a node with a certificate of its own may come to at the registry, the selector and its clients."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from benchmarks.attack.attacks import attack
from benchmarks.attack.outcomes import (
    ANOTHER_NODE,
    REVOKED,
    ROLE_MAY_NOT,
    UNREACHABLE,
    By,
    Outcome,
    Refusal,
    first_of,
    refused,
    worst,
)
from benchmarks.attack.strangers import NO_DOOR
from benchmarks.attack.system import System
from peerloom.admission.certificates import make_request, new_key
from peerloom.admission.joining import come_back
from peerloom.client.async_client import AsyncClient
from peerloom.errors import PeerloomError
from peerloom.kit.dialing import Dialer
from peerloom.kit.ids import new_request_id
from peerloom.v1.admission_pb2 import CreateTokenRequest, RenewRequest
from peerloom.v1.node_agent_pb2 import HandshakeRequest
from peerloom.v1.registry_pb2 import (
    AdvertiseArtifactsRequest,
    AnnounceServiceRequest,
    DeregisterRequest,
    HeartbeatRequest,
    ListNodesRequest,
    ListNodesResponse,
    RegisterRequest,
    ServiceKind,
)
from peerloom.v1.registry_pb2_grpc import RegistryServiceServicer, add_RegistryServiceServicer_to_server

NO_CERTIFICATES = "a plain system has no certificates"


@attack(By.NODE, "sends a heartbeat on another node's lease")
async def beat_for_another(system: System) -> Outcome:
    """Hopes to keep a node alive that is gone, or to have its slots and state said otherwise."""
    victim, evil = await system.victim(), await system.dialer("node")

    async def beat() -> AsyncIterator[HeartbeatRequest]:
        yield HeartbeatRequest(lease_id=victim.session.lease_id, incarnation=victim.session.incarnation)

    async with evil.registry(system.registry) as registry:
        answer = first_of(registry.converse(registry.stub.Heartbeat, beat()))
        return await refused(answer, ANOTHER_NODE, gain="the registry takes its word for another's")


@attack(By.NODE, "ends another node's lease")
async def deregister_another(system: System) -> Outcome:
    """Hopes to have a rival's jobs leave it."""
    victim, evil = await system.victim(), await system.dialer("node")
    async with evil.registry(system.registry) as registry:
        request = DeregisterRequest(lease_id=victim.session.lease_id, reason="goes home")
        call = registry.call(registry.stub.Deregister, request)
        return await refused(call, ANOTHER_NODE, gain="the other node is gone")


@attack(By.NODE, "says that another node holds an artifact")
async def advertise_for_another(system: System) -> Outcome:
    """Hopes that others ask the victim in vain, and think less of it."""
    victim, evil = await system.victim(), await system.dialer("node")
    async with evil.registry(system.registry) as registry:
        request = AdvertiseArtifactsRequest(
            lease_id=victim.session.lease_id, version=1, added=[hashlib.sha256(b"none").digest()]
        )
        call = registry.call(registry.stub.AdvertiseArtifacts, request)
        return await refused(call, ANOTHER_NODE, gain="the victim is listed as a holder")


@attack(By.NODE, "registers under another's name, with its stolen key")
async def register_as_another(system: System) -> Outcome:
    """Hopes to get the work that a trusted node has earned."""
    victim, evil = await system.victim(), await system.dialer("node")
    request = RegisterRequest()
    request.CopyFrom(victim.request)
    request.request_id, request.spec.address = new_request_id(), "127.0.0.1:10"
    another = Refusal("PERMISSION_DENIED", "ANOTHER_CERTIFICATE")
    async with evil.registry(system.registry) as registry:
        call = registry.call(registry.stub.Register, request)
        return await refused(call, another, gain="it is the other node, at its own address")


@attack(By.NODE, "announces itself as trainer and as selector")
async def announce_a_service(system: System) -> Outcome:
    """Hopes that agents work for it, and that clients believe it."""
    evil, found = await system.dialer("node"), list[Outcome]()
    async with evil.registry(system.registry) as registry:
        for kind in (ServiceKind.SERVICE_KIND_TRAINER, ServiceKind.SERVICE_KIND_SELECTOR):
            # In a plain system the true address, or nothing would work there any more.
            word = ServiceKind.Name(kind).rpartition("_")[2].lower()
            address = "127.0.0.1:10" if system.is_closed else system.addresses[word]
            announced = AnnounceServiceRequest(kind=kind, address=address)
            call = registry.call(registry.stub.AnnounceService, announced)
            found.append(await refused(call, ROLE_MAY_NOT, gain="it is listed as a coordinator"))
    return worst(*found)


@attack(By.NODE, "makes tokens for nodes, trainers and operators", NO_DOOR)
async def make_tokens(system: System) -> Outcome:
    """Hopes to admit more of itself, or something mightier."""
    evil, found = await system.dialer("node"), list[Outcome]()
    async with evil.admission(system.registry) as door:
        for role in ("node", "trainer", "operator"):
            call = door.call(door.stub.CreateToken, CreateTokenRequest(role=role))
            found.append(await refused(call, ROLE_MAY_NOT, gain=f"a token for a {role}"))
    return worst(*found)


class _FakeRegistry(RegistryServiceServicer):
    """Says that there are no nodes."""

    async def ListNodes(self, request: ListNodesRequest, context: Any) -> ListNodesResponse:  # noqa: N802  # the call's name
        return ListNodesResponse()


@attack(By.NODE, "serves as a registry, by its own certificate, to an operator's client")
async def pose_as_the_registry(system: System) -> Outcome:
    """Hopes that a client which was led to it tells what it would tell the registry."""
    evil, server = await system.dialer("node"), aio.server()
    add_RegistryServiceServicer_to_server(_FakeRegistry(), server)  # type: ignore[abstract]  # one method will do
    if evil.identity is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", evil.identity.server_credentials())
    await server.start()
    address = f"127.0.0.1:{port}"
    try:
        if system.is_closed:
            await _is_a_node_there(system, address)
        identity = system.folder / "registry" / "operator.pem"
        async with AsyncClient(address, identity=str(identity) if system.is_closed else "") as client:
            return await refused(client.nodes(), UNREACHABLE, gain="the client believes its list of nodes")
    finally:
        await server.stop(None)


async def _is_a_node_there(system: System, address: str) -> None:
    """Raises unless a member that looks for a node finds one there: the server is up, and TLS works."""
    async with system.operator().node_agent(address) as peer:
        try:
            await peer.call(peer.stub.Handshake, HandshakeRequest())
        except PeerloomError as error:
            if error.reason == UNREACHABLE.reason:  # else the call came through, and isn't served
                raise


async def _list_nodes(dialer: Dialer, system: System) -> None:
    async with dialer.registry(system.registry) as registry:
        await registry.call(registry.stub.ListNodes, ListNodesRequest())


async def _renew(dialer: Dialer, system: System) -> None:
    async with dialer.admission(system.registry) as door:
        await door.call(door.stub.Renew, RenewRequest(certificate_request=make_request(new_key())))


@attack(By.NODE, "lists nodes and renews itself by a worker's certificate", NO_CERTIFICATES)
async def go_further_as_a_worker(system: System) -> Outcome:
    """Hopes that a certificate made for one job opens more, and never ends."""
    evil = await system.dialer("node")
    worker = await system.worker(evil, "worker-1", "job-1")
    found = [await refused(_list_nodes(worker, system), ROLE_MAY_NOT, gain="the list of all nodes")]
    found.append(await refused(_renew(worker, system), ROLE_MAY_NOT, gain="a certificate without end"))
    return worst(*found)


@attack(By.NODE, "comes back after it was turned out: calls, renews, rejoins, has a child made", NO_DOOR)
async def come_back_after_revocation(system: System) -> Outcome:
    """Hopes that its key, which is still good, opens another way in."""
    evil = await system.dialer("node")
    identity = evil.identity
    assert identity is not None
    await _list_nodes(evil, system)
    async with system.client() as client:
        await client.door.revoke(identity.principal.id)
    found = [await refused(_list_nodes(evil, system), REVOKED, gain="the list of all nodes")]
    found.append(await refused(_renew(evil, system), REVOKED, gain="a new certificate"))
    child = system.worker(evil, "worker-1", "job-1")
    found.append(await refused(child, REVOKED, gain="a certificate of a worker"))
    by_key = Refusal("PERMISSION_DENIED", "CERTIFICATE_REFUSED")
    found.append(await refused(come_back(identity), by_key, gain="a new certificate at the join port"))
    return worst(*found)
