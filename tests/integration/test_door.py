"""A system with a door: who gets in, what each may do there, and who is turned out."""

import asyncio
import errno
import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from door_system import LIMIT_S, DoorSystem
from grpc import aio
from node_agent_parts import StartService

from peerloom.admission.certificates import Authority
from peerloom.admission.join_string import JoinString
from peerloom.admission.joining import enter, join_by_token
from peerloom.client.async_client import AsyncClient
from peerloom.client.login import log_in
from peerloom.client.profiles import Profiles
from peerloom.errors import (
    ConfigurationError,
    FailedPreconditionError,
    InvalidArgumentError,
    PermissionDeniedError,
    UnavailableError,
)
from peerloom.kit.clock import SystemClock
from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import Credentials, Identity, write_identity
from peerloom.kit.ids import new_request_id, new_secret
from peerloom.kit.principal import Principal, Role
from peerloom.v1.admission_pb2 import CertifyChildRequest
from peerloom.v1.registry_pb2 import (
    AnnounceServiceRequest,
    DeregisterRequest,
    HeartbeatRequest,
    ListNodesRequest,
    NodeSpec,
    NodeState,
    RegisterRequest,
    ServiceKind,
    WatchNodesRequest,
)
from peerloom.v1.trainer_pb2 import WorkerHello, WorkerSessionRequest

BUF = Path(sys.executable).parent / "buf"
pytestmark = pytest.mark.timeout(240)


STRANGERS, GREETINGS_OF_EACH = 16, 200


@pytest.fixture
def system(start_service: StartService, tmp_path: Path) -> DoorSystem:
    return DoorSystem(tmp_path, start_service)


@pytest.fixture(autouse=True)
async def _limit() -> AsyncIterator[None]:
    async with asyncio.timeout(LIMIT_S):
        yield


def greet_often(address: str) -> None:
    """Connects by TLS and goes again, as anybody can."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    for _ in range(GREETINGS_OF_EACH):
        with socket.create_connection((host, int(port)), LIMIT_S) as plain, context.wrap_socket(plain):
            pass


async def list_nodes(dialer: Dialer, address: str) -> None:
    async with dialer.registry(address) as registry:
        await registry.call(registry.stub.ListNodes, ListNodesRequest())


def stranger(folder: Path, life_s: float = 3600.0, authority: Authority | None = None) -> Identity:
    """Somebody with a certificate of an authority of their own."""
    authority = authority or Authority.new(time.time(), 1)
    principal = Principal(Role.OPERATOR, "operator", "registry")
    path = folder / f"stranger-{life_s}.pem"
    write_identity(path, authority.credentials(principal, time.time(), life_s))
    return Identity(path)


async def test_nobody_gets_in_without_a_certificate_of_this_registry(
    system: DoorSystem, tmp_path: Path
) -> None:
    await list_nodes(Dialer(Identity(system.operator_file)), system.address)
    foreign = stranger(tmp_path)
    # Knows our authority, and shows a certificate of another one.
    ours = Identity(system.operator_file).current.authorities
    posing = Credentials.parse(foreign.current.key + foreign.current.certificate + ours)
    write_identity(tmp_path / "posing.pem", posing)
    for dialer in (Dialer(), Dialer(foreign), Dialer(Identity(tmp_path / "posing.pem"))):
        with pytest.raises(UnavailableError):
            await list_nodes(dialer, system.address)


async def test_a_token_makes_a_profile_that_opens_the_door_where_it_is_used(
    system: DoorSystem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PEERLOOM_STATE", str(tmp_path / "alice"))
    monkeypatch.delenv("PEERLOOM_ADDRESS", raising=False)
    token = await system.token("user", owner="alice")
    address, who = await asyncio.to_thread(log_in, token, "lab")
    assert address == system.address
    assert [(each.address, each.who) for each in Profiles().list()] == [(address, who)]
    async with AsyncClient(profile="lab") as client:
        assert await client.nodes() == []
    Profiles().use("lab")
    async with AsyncClient() as client:
        assert client.address == address
        assert await client.nodes() == []


async def test_who_comes_without_an_identity_hears_of_the_door_and_of_login(
    system: DoorSystem, start_service: StartService, tmp_path: Path
) -> None:
    """By call, by stream and as a node; a plain service that isn't there, or no TLS, has no door."""
    async with Dialer().registry(system.address) as peer:
        with pytest.raises(UnavailableError, match="a system with a door") as told:
            await peer.call(peer.stub.ListNodes, ListNodesRequest())
        assert told.value.reason == "BEHIND_A_DOOR"
        assert "peerloom login TOKEN" in told.value.message
        with pytest.raises(UnavailableError, match="a system with a door"):
            await anext(peer.stream(peer.stub.WatchNodes, WatchNodesRequest()))
    node = start_service("node_agent", "--registry", system.address, "--state", str(tmp_path / "plain"))
    while "--join TOKEN" not in node.log():  # noqa: ASYNC110  # nobody tells; all tests here have a limit
        await asyncio.sleep(0)
    silent = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    async with silent:
        with pytest.raises(UnavailableError, match="can't be reached"):
            await list_nodes(Dialer(), address)
    with pytest.raises(UnavailableError, match="can't be reached"):
        await list_nodes(Dialer(), address)


async def test_a_node_cannot_pose_as_the_registry(system: DoorSystem, tmp_path: Path) -> None:
    """Whoever dials the registry insists on its name, not only on a certificate of its authority."""
    node = await system.dialer("node")
    server = aio.server()
    assert node.identity is not None
    port = server.add_secure_port("127.0.0.1:0", node.identity.server_credentials())
    await server.start()
    try:
        with pytest.raises(UnavailableError):
            await list_nodes(Dialer(Identity(system.operator_file)), f"127.0.0.1:{port}")
    finally:
        await server.stop(0)


async def test_a_token_admits_once_in_time_and_only_at_its_own_registry(
    system: DoorSystem, tmp_path: Path
) -> None:
    token = JoinString.parse(await system.token("user", "ada"))
    path = tmp_path / "ada.pem"
    assert await join_by_token(token, path) == system.address
    assert str(Identity(path).principal).endswith("of ada")
    with pytest.raises(PermissionDeniedError, match="a token works once"):
        await join_by_token(token, path)
    wrong = JoinString(token.token_id, new_secret(), token.authority_sha256, token.address)
    with pytest.raises(PermissionDeniedError, match="none of this registry's"):
        await join_by_token(wrong, path)
    elsewhere = JoinString(token.token_id, token.secret, "0" * 64, token.address)
    with pytest.raises(PermissionDeniedError, match="not the registry that made this token"):
        await join_by_token(elsewhere, path)
    ended = JoinString.parse(await system.token("user", ttl_s=0.001))
    with pytest.raises(PermissionDeniedError, match="it ended"):
        await join_by_token(ended, path)
    with pytest.raises(InvalidArgumentError, match="beginning with plj1") as refused:
        JoinString.parse(str(token)[:-30].replace("plj1", "plj2"))
    assert token.secret not in refused.value.message


async def test_strangers_who_connect_at_once_end_nothing(system: DoorSystem) -> None:
    text = await system.token("user", "lab")
    join_address = JoinString.parse(text).address
    with ThreadPoolExecutor(STRANGERS) as strangers:
        list(strangers.map(greet_often, [join_address] * STRANGERS))
    await join_by_token(JoinString.parse(text), system.folder / "afterwards.pem")


async def test_two_who_use_a_token_at_once_are_one_admitted(system: DoorSystem, tmp_path: Path) -> None:
    token = JoinString.parse(await system.token("user"))
    joining = [join_by_token(token, tmp_path / f"{number}.pem") for number in range(5)]
    answers = await asyncio.gather(*joining, return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["PermissionDeniedError"] * 4 + ["str"]


async def test_a_node_speaks_for_itself_only(system: DoorSystem) -> None:
    one, other = await system.dialer("node", "ada"), await system.dialer("node", "bob")
    assert one.identity is not None
    async with one.registry(system.address) as own, other.registry(system.address) as foreign:
        spec = NodeSpec(name="ada", address="127.0.0.1:9", slots=1, owner="somebody-else")
        request = RegisterRequest(spec=spec, node_key=new_secret(), request_id=new_request_id())
        session = await own.call(own.stub.Register, request)
        assert session.node_id == one.identity.principal.id
        with pytest.raises(PermissionDeniedError, match="speaks for itself only"):
            await foreign.call(foreign.stub.Deregister, DeregisterRequest(lease_id=session.lease_id))

        async def beat() -> AsyncIterator[HeartbeatRequest]:
            yield HeartbeatRequest(lease_id=session.lease_id, incarnation=session.incarnation)

        with pytest.raises(PermissionDeniedError, match="speaks for itself only"):
            async for _ in foreign.converse(foreign.stub.Heartbeat, beat()):
                pass
        announced = AnnounceServiceRequest(kind=ServiceKind.SERVICE_KIND_TRAINER, address="127.0.0.1:9")
        with pytest.raises(PermissionDeniedError, match="isn't for the role node"):
            await own.call(own.stub.AnnounceService, announced)
        # Also with the key of the other, it is not the other.
        request.request_id = new_request_id()
        with pytest.raises(PermissionDeniedError, match="token create --role node --name node-"):
            await foreign.call(foreign.stub.Register, request)
    async with system.client() as client:
        (node,) = await client.nodes()
    assert node.owner == "ada"


async def test_an_owner_acts_on_what_is_its_own(system: DoorSystem) -> None:
    ada, bob = await system.admit("user", "ada"), await system.admit("user", "bob")
    node = await system.dialer("node", "ada")
    async with node.registry(system.address) as own:
        spec = NodeSpec(name="ada", address="127.0.0.1:9", slots=1)
        await own.call(
            own.stub.Register,
            RegisterRequest(spec=spec, node_key=new_secret(), request_id=new_request_id()),
        )
    async with system.client(bob) as client:
        with pytest.raises(PermissionDeniedError, match="belongs to ada, not to bob"):
            await client.drain("ada")
        with pytest.raises(PermissionDeniedError, match="belongs to ada"):
            await client.remove_node("ada", force=True)
        with pytest.raises(PermissionDeniedError, match="only an operator names another owner"):
            await client.door.create_token("node", owner="ada")
        assert [each.owner for each in await client.door.admitted()] == ["bob"]
        with pytest.raises(PermissionDeniedError, match="isn't for the role user"):
            await client.door.rotate_authority()
    async with system.client(ada) as client:
        assert (await client.drain("ada")).draining
        made = await client.door.create_token("node")
        assert {each.owner for each in await client.door.admitted()} == {"ada"}
    joined = system.folder / "second.pem"
    await join_by_token(JoinString.parse(made.text), joined)
    assert Identity(joined).principal.owner == "ada"


async def test_who_was_turned_out_is_out_at_once_and_comes_back_with_a_new_token(
    system: DoorSystem, tmp_path: Path
) -> None:
    dialer = await system.dialer("node", "ada")
    assert dialer.identity is not None
    name = dialer.identity.principal.id
    async with dialer.registry(system.address) as own, system.client() as client:
        spec = NodeSpec(name="ada", address="127.0.0.1:9", slots=1)
        request = RegisterRequest(spec=spec, node_key=new_secret(), request_id=new_request_id())
        session = await own.call(own.stub.Register, request)
        goes_on = asyncio.Event()

        async def beats() -> AsyncIterator[HeartbeatRequest]:
            beat = HeartbeatRequest(lease_id=session.lease_id, incarnation=session.incarnation)
            yield beat
            await goes_on.wait()
            yield beat

        stream = own.converse(own.stub.Heartbeat, beats())
        assert (await anext(stream)).state == NodeState.NODE_STATE_ALIVE
        assert (await client.door.revoke(name)).revoked
        with pytest.raises(PermissionDeniedError, match="was revoked"):
            await own.call(own.stub.ListNodes, ListNodesRequest())
        goes_on.set()
        with pytest.raises(PermissionDeniedError, match="was revoked"):
            await anext(stream)  # a stream that was open before ends too
        # Nor does an ended certificate help.
        with pytest.raises(PermissionDeniedError):
            await ended(dialer.identity, system)
    with pytest.raises(InvalidArgumentError, match="must be ada, whose"):
        await system.token("node", owner="bob", name=name)
    again = JoinString.parse(await system.token("node", name=name))  # it keeps its owner
    await join_by_token(again, tmp_path / "again.pem")
    assert Identity(tmp_path / "again.pem").principal == dialer.identity.principal
    await list_nodes(Dialer(Identity(tmp_path / "again.pem")), system.address)


async def ended(identity: Identity, system: DoorSystem, token: str = "") -> None:
    """Comes back as somebody whose certificate has ended, by a clock that says so."""
    folder = system.folder / "ended"
    folder.mkdir()
    shutil.copy(identity.path, folder / "identity.pem")
    shutil.copy(identity.path.parent / "join-port", folder / "join-port")
    clock = LaterClock()
    came = await enter(folder, token, clock)
    assert came is not None
    assert came.current.certificate != identity.current.certificate


class LaterClock(SystemClock):
    """Two days ahead: the certificate has ended here, and the registry doesn't know."""

    def wall_s(self) -> float:
        return time.time() + 2 * 86_400


async def test_who_was_away_for_long_comes_back_with_its_key_and_a_thief_of_the_certificate_does_not(
    system: DoorSystem,
) -> None:
    identity = Identity(await system.admit("node", "ada"))
    await ended(identity, system)
    # Another key with that certificate.
    foreign = stranger(system.folder)
    stolen = foreign.current.key + identity.current.certificate + identity.current.authorities
    write_identity(system.folder / "stolen.pem", Credentials.parse(stolen))
    shutil.rmtree(system.folder / "ended")
    with pytest.raises(PermissionDeniedError, match="admits nobody any more"):
        await ended(Identity(system.folder / "stolen.pem"), system)


async def test_a_full_disk_when_an_ended_certificate_is_renewed_is_told_with_what_to_do(
    system: DoorSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that was given besides stays unused, and the old identity renews itself once there is room."""
    identity, token = Identity(await system.admit("node", "ada")), await system.token("node", "ada")

    def refuse(path: Path, credentials: Credentials) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as full:
        full.setattr("peerloom.kit.identity.write_identity", refuse)
        with pytest.raises(ConfigurationError, match=r"No space left.*make room on that disk"):
            await ended(identity, system, token)
    shutil.rmtree(system.folder / "ended")
    await ended(Identity(identity.path), system)
    await join_by_token(JoinString.parse(token), system.folder / "another.pem")


async def test_a_worker_has_the_session_of_its_own_job_and_nothing_else(system: DoorSystem) -> None:
    from peerloom.admission.joining import certify

    node = await system.dialer("node", "ada")
    trainer = system.start_service("trainer", await system.token("trainer"))
    async with node.admission(system.address) as door:

        async def ask(request: bytes) -> tuple[bytes, bytes]:
            child = CertifyChildRequest(
                certificate_request=request, role="worker", id="worker-1", job_id="job-1"
            )
            answer = await door.call(door.stub.CertifyChild, child)
            return answer.certificate, answer.authorities

        path = system.folder / "worker.pem"
        write_identity(path, await certify(ask))
    worker = Dialer(Identity(path))
    assert Identity(path).principal.owner == "ada"
    with pytest.raises(PermissionDeniedError, match="isn't for the role worker"):
        await list_nodes(worker, system.address)
    async with worker.trainer(trainer.address) as opened:

        async def hello(worker_id: str, job_id: str) -> str:
            async def say() -> AsyncIterator[WorkerSessionRequest]:
                said = WorkerHello(worker_id=worker_id, job_id=job_id)
                yield WorkerSessionRequest(hello=said)

            answer = await anext(opened.converse(opened.stub.WorkerSession, say()))
            return str(answer.end.reason)

        assert await hello("worker-1", "job-1") == "the job job-1 is over"
        for other in (("worker-2", "job-1"), ("worker-1", "job-2")):
            with pytest.raises(PermissionDeniedError, match="can't speak for"):
                await hello(*other)


async def test_a_service_that_is_not_loopback_needs_the_door(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "peerloom.services.registry", "--listen", "0.0.0.0:0"]
    done = await asyncio.to_thread(run, *command, "--state", str(tmp_path))
    assert done.returncode == 2
    assert "needs the door" in done.stderr
    assert "--join-listen" in done.stderr


async def test_a_plain_registry_has_no_door_and_says_so(start_service: StartService, tmp_path: Path) -> None:
    from peerloom.client.async_client import AsyncClient

    registry = start_service("registry", "--state", str(tmp_path))
    async with AsyncClient(registry.address) as client:
        with pytest.raises(FailedPreconditionError, match="has no door"):
            await client.door.admitted()


async def test_grpcurl_speaks_with_the_one_file_that_an_identity_is(system: DoorSystem) -> None:
    """By buf curl, which speaks the same reflection: the file is certificate, key and authorities at once."""
    file = str(system.operator_file)
    command = [str(BUF), "curl", "--protocol", "grpc", "--cacert", file, "--servername", "registry.peerloom"]
    url = f"https://{system.address}/peerloom.v1.RegistryService/ListNodes"
    known = await asyncio.to_thread(run, *command, "--cert", file, "--key", file, "-d", "{}", url)
    assert known.returncode == 0, known.stderr
    assert json.loads(known.stdout) == {}
    unknown = await asyncio.to_thread(run, *command, "-d", "{}", url)
    assert unknown.returncode != 0


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


async def test_a_message_says_which_status_a_refusal_has(system: DoorSystem) -> None:
    node = await system.dialer("node")
    assert node.identity is not None
    options = [("grpc.ssl_target_name_override", "registry.peerloom")]
    credentials = node.identity.channel_credentials()
    async with aio.secure_channel(system.address, credentials, options=options) as channel:
        call = channel.unary_unary("/peerloom.v1.AdmissionService/RotateAuthority")
        with pytest.raises(aio.AioRpcError) as refused:
            await call(b"")
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
