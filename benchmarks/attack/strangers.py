"""What somebody may come to who reaches the ports and was never admitted."""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable

import grpc
from grpc import aio

from benchmarks.attack.attacks import attack
from benchmarks.attack.bulk import BulkTarget, ask_bulk_port, bulk_target
from benchmarks.attack.outcomes import (
    BEHIND_A_DOOR,
    UNREACHABLE,
    By,
    Gain,
    Held,
    Outcome,
    ProvesNothingError,
    Refusal,
    refused,
    worst,
)
from benchmarks.attack.system import ATTACKER, System
from peerloom.admission.certificates import Authority
from peerloom.admission.join_string import JoinString
from peerloom.admission.joining import join_by_token
from peerloom.errors import PeerloomError
from peerloom.kit.dialing import Dialer
from peerloom.kit.identity import Credentials, Identity, write_identity
from peerloom.kit.ids import new_secret
from peerloom.kit.principal import Principal, Role
from peerloom.v1.node_agent_pb2 import HandshakeRequest
from peerloom.v1.registry_pb2 import ListNodesRequest
from peerloom.v1.selector_pb2 import ListPoliciesRequest
from peerloom.v1.trainer_pb2 import ListJobsRequest

NO_DOOR = "a plain system has no tokens"
NO_CERTIFICATES = "a plain system takes no certificates"


async def _ask_registry(dialer: Dialer, system: System) -> None:
    async with dialer.registry(system.registry) as peer:
        await peer.call(peer.stub.ListNodes, ListNodesRequest())


async def _ask_selector(dialer: Dialer, system: System) -> None:
    async with dialer.selector(system.addresses["selector"]) as peer:
        await peer.call(peer.stub.ListPolicies, ListPoliciesRequest())


async def _ask_trainer(dialer: Dialer, system: System) -> None:
    async with dialer.trainer(system.addresses["trainer"]) as peer:
        await peer.call(peer.stub.ListJobs, ListJobsRequest())


async def _ask_agent(dialer: Dialer, system: System) -> None:
    async with dialer.node_agent(system.addresses["open"]) as peer:
        await peer.call(peer.stub.Handshake, HandshakeRequest(caller="stranger"))


SERVICES: dict[str, Callable[[Dialer, System], Awaitable[None]]] = {
    "registry": _ask_registry,
    "selector": _ask_selector,
    "trainer": _ask_trainer,
    "node agent": _ask_agent,
}


async def _ask_all(dialer: Dialer, system: System) -> Outcome:
    """Each service; that it serves at all is proved by the operator, who asks the same."""
    found = []
    for name, ask in SERVICES.items():
        refusal = BEHIND_A_DOOR if dialer.identity is None else UNREACHABLE
        found.append(await refused(ask(dialer, system), refusal, gain=f"an answer of the {name}"))
        await ask(system.operator(), system)
    return worst(*found)


def _foreign(system: System) -> Identity:
    """An operator by another authority's word, who knows the true one: it is public."""
    principal = Principal(Role.OPERATOR, "operator", "registry")
    foreign = Authority.new(time.time(), 1).credentials(principal, time.time(), 3600.0)
    ours = Identity(system.folder / "registry" / "operator.pem").current.authorities
    path = system.folder / "foreign.pem"
    write_identity(path, Credentials.parse(foreign.key + foreign.certificate + ours))
    return Identity(path)


@attack(By.STRANGER, "asks registry, selector, trainer and agent in the clear")
async def call_without_tls(system: System) -> Outcome:
    """Hopes that a service answers who shows nothing."""
    return await _ask_all(Dialer(), system)


@attack(By.STRANGER, "asks them by TLS without a certificate", NO_CERTIFICATES)
async def call_without_a_certificate(system: System) -> Outcome:
    """Hopes that encryption is enough."""
    authorities = system.operator().identity.current.authorities  # type: ignore[union-attr]  # it is closed

    def open_(address: str, identity: Identity | None, host_name: str) -> aio.Channel:
        options = [("grpc.ssl_target_name_override", host_name)]
        return aio.secure_channel(address, grpc.ssl_channel_credentials(authorities), options)

    return await _ask_all(Dialer(None, open_), system)


@attack(By.STRANGER, "asks them with an operator's certificate of another authority", NO_CERTIFICATES)
async def call_with_a_foreign_certificate(system: System) -> Outcome:
    """Hopes that any certificate with the right words in it will do."""
    return await _ask_all(Dialer(_foreign(system)), system)


@attack(By.STRANGER, "asks an agent's bulk port for a chunk, in the clear")
async def take_a_chunk_in_the_clear(system: System) -> Outcome:
    """Hopes that artifacts are to be had beside gRPC."""
    member = (await system.dialer("node")).identity
    return await _take_a_chunk(await bulk_target(system), None, member)


@attack(By.STRANGER, "asks it by TLS, without and with a foreign certificate", NO_CERTIFICATES)
async def take_a_chunk_by_tls(system: System) -> Outcome:
    """Hopes that the bulk port asks for less than gRPC does."""
    target, foreign, found = await bulk_target(system), _foreign(system), list[Outcome]()
    member = (await system.dialer("node")).identity
    for certificate in (None, foreign):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate is not None:
            context.load_cert_chain(certificate.path)
        found.append(await _take_a_chunk(target, context, member))
    return worst(*found)


async def _take_a_chunk(
    target: BulkTarget, context: ssl.SSLContext | None, member: Identity | None
) -> Outcome:
    """What the bulk port gives; that it gives a chunk to a member proves that it serves."""
    try:
        content = await asyncio.to_thread(ask_bulk_port, target, context)
    except (OSError, EOFError) as error:
        if member is None:
            raise ProvesNothingError(f"a plain bulk port gave nothing: {error}") from error
        await asyncio.to_thread(ask_bulk_port, target, member.client_context())
        return Held(f"no chunk comes ({type(error).__name__}), where a member gets it")
    return Gain(f"{len(content):,} bytes of an artifact")


def _token_refused(says: str) -> Refusal:
    return Refusal("PERMISSION_DENIED", "TOKEN_REFUSED", says)


@attack(By.STRANGER, "joins by a token that another has used", NO_DOOR)
async def use_a_token_twice(system: System) -> Outcome:
    """Hopes that a token found in somebody's shell history still works."""
    token, path = JoinString.parse(await system.token("user", ATTACKER)), system.folder / "first.pem"
    await join_by_token(token, path)
    again = join_by_token(token, system.folder / "second.pem")
    return await refused(again, _token_refused("a token works once"), gain="a second identity by one token")


@attack(By.STRANGER, "joins five times at once by one token", NO_DOOR)
async def race_with_a_token(system: System) -> Outcome:
    """Hopes to be admitted between the look at the token and the note that it is used."""
    token = JoinString.parse(await system.token("user", ATTACKER))
    joining = [join_by_token(token, system.folder / f"race-{number}.pem") for number in range(5)]
    answers = await asyncio.gather(*joining, return_exceptions=True)
    errors = [one for one in answers if isinstance(one, PeerloomError)]
    refusals = [one for one in errors if _token_refused("").is_of(one)]
    if len(answers) - len(errors) > 1:
        return Gain(f"{len(answers) - len(errors)} identities by one token")
    if len(refusals) != 4:
        raise ProvesNothingError(f"{answers}")
    return Held(f"one of five got in; {refusals[0].message}")


@attack(By.STRANGER, "joins by a token that has ended", NO_DOOR)
async def use_an_ended_token(system: System) -> Outcome:
    """Hopes that nobody looks at the time."""
    token = JoinString.parse(await system.token("user", ATTACKER, ttl_s=0.001))
    joining = join_by_token(token, system.folder / "ended.pem")
    return await refused(joining, _token_refused("it ended"), gain="an identity")


@attack(By.STRANGER, "joins by a token's id and another secret", NO_DOOR)
async def guess_a_secret(system: System) -> Outcome:
    """Hopes that the id is looked at alone."""
    true = JoinString.parse(await system.token("user", ATTACKER))
    guess = JoinString(true.token_id, new_secret(), true.authority_sha256, true.address)
    joining = join_by_token(guess, system.folder / "guess.pem")
    return await refused(joining, _token_refused("none of this registry's"), gain="an identity")
