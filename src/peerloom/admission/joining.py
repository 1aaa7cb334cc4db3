"""Joining: a token becomes an identity on disk, and who was away for long comes back with the one it had."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
from grpc import aio

from peerloom.admission.certificates import authority_inside, digest_of, make_request, new_key
from peerloom.admission.join_string import JoinString
from peerloom.errors import ConfigurationError, PeerloomError, PermissionDeniedError, UnavailableError
from peerloom.kit.channel import Peer
from peerloom.kit.clock import Clock
from peerloom.kit.identity import FILE_NAME, Credentials, Identity, write_identity, write_private
from peerloom.kit.logs import get_logger
from peerloom.v1.admission_pb2 import JoinRequest, JoinResponse
from peerloom.v1.admission_pb2_grpc import JoinServiceStub

JOIN_FILE = "join-port"  # beside the identity: where to come back to
NOT_KEPT = "IDENTITY_NOT_KEPT"
_LIMIT_S = 10.0
_JOIN_NAME = "join.peerloom"  # in the join port's certificate
_WILDCARDS = ("0.0.0.0", "[::]")
_log = get_logger()


async def enter(state: Path, join: str, clock: Clock) -> Identity | None:
    """What a service proves itself with: what lies in its state folder, or what the token `join` admits to.

    None without either: it is plain. An identity that has ended is renewed at the join port. Raises
    PermissionDeniedError for a token or certificate that is refused, UnavailableError when the port can't be
    reached, ConfigurationError for files that can't be used.
    """
    path = state / FILE_NAME
    if not path.exists():
        if not join:
            return None
        await join_by_token(JoinString.parse(join), path)
    identity = Identity(path)
    if clock.wall_s() >= identity.current.ends_s:
        try:
            await renew_ended(identity)
        except PeerloomError as error:
            if not join or error.reason == NOT_KEPT:  # a token would be used up for nothing
                raise
            _log.warning("certificate_ended", reason=error.message, next="joining by the token")
            await join_by_token(JoinString.parse(join), path)
            identity = Identity(path)
    return identity


async def join_by_token(token: JoinString, path: Path) -> str:
    """Takes a token for the identity at `path`; returns the registry's address. Raises as `enter`."""
    authority = await _authority_at(token)
    key = new_key()
    request = JoinRequest(token_id=token.token_id, secret=token.secret, certificate_request=make_request(key))
    answer = await _ask(token.address, authority, request)
    try:
        write_identity(path, Credentials.parse(key + answer.certificate + answer.authorities))
        write_private(path.parent / JOIN_FILE, f"{token.address}\n".encode())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the identity can't be kept at {path}: {error}") from error
    return registry_address(answer.registry_address, token.address)


def registry_address(told: str, reached: str) -> str:
    """host:port of the registry: as it was told, at the host that was reached where it listens on all."""
    host, _, port = told.rpartition(":")
    return f"{reached.rpartition(':')[0]}:{port}" if host in _WILDCARDS else told


async def renew_ended(identity: Identity) -> None:
    """`come_back`, for whoever begins: raises ConfigurationError when the disk doesn't take the new one."""
    try:
        await come_back(identity)
    except OSError as error:
        raise ConfigurationError(
            f"the certificate in {identity.path} had ended, and the new one can't be kept there ({error}): "
            "make room on that disk, or let this user write there, and start again; the old one still serves "
            "for that.",
            reason=NOT_KEPT,
        ) from error


async def come_back(identity: Identity) -> None:
    """Renews an identity that has ended: from its file, if that is newer, else at the join port, by its key.

    Raises PermissionDeniedError for one that was revoked or ended long ago, UnavailableError when the port
    can't be reached, ConfigurationError when the file that names it is gone, OSError when the renewed one
    can't be kept.
    """
    if identity.reload():
        return
    former, note = identity.current, identity.path.parent / JOIN_FILE
    try:
        address = note.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigurationError(
            f"the certificate in {identity.path} has ended, and {note} can't be read ({error}): join again "
            "with a new token, which `peerloom token create` prints."
        ) from error
    request = JoinRequest(certificate_request=make_request(former.key), former_certificate=former.certificate)
    answer = await _ask(address, former.authorities, request)
    identity.renew(Credentials.parse(former.key + answer.certificate + answer.authorities))


async def _authority_at(token: JoinString) -> bytes:
    """The authority of the registry at the token's address, if it is the token's.

    The certificate that the port shows carries it; nothing else is believed of it yet.
    """
    try:
        authority = authority_inside(await asyncio.to_thread(_shown_certificate, token.address))
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"The join port {token.address} can't be used: {error}. Is the registry up there?",
            reason="JOIN_PORT",
        ) from error
    if digest_of(authority) != token.authority_sha256:
        raise PermissionDeniedError(
            f"{token.address} is not the registry that made this token: its authority has another digest. "
            "Somebody may stand between; or the registry was set up anew, then ask for a new token.",
            reason="FOREIGN_AUTHORITY",
        )
    return authority


def _shown_certificate(address: str) -> bytes:
    """The certificate (PEM) that whoever is at host:port shows, unchecked. Raises OSError."""
    host, _, port = address.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host.strip("[]"), int(port)), _LIMIT_S) as line,
        context.wrap_socket(line, server_hostname=_JOIN_NAME) as secured,
    ):
        return ssl.DER_cert_to_PEM_cert(secured.getpeercert(binary_form=True) or b"").encode()


async def _ask(address: str, authority: bytes, request: JoinRequest) -> JoinResponse:
    credentials = grpc.ssl_channel_credentials(authority)
    options = [("grpc.ssl_target_name_override", _JOIN_NAME), ("grpc.enable_http_proxy", 0)]

    def open_() -> aio.Channel:
        return aio.secure_channel(address, credentials, options=options)

    async with Peer(JoinServiceStub, "join port", address, open_) as peer:
        answer: JoinResponse = await peer.call(peer.stub.Join, request, _LIMIT_S)
        return answer


async def certify(
    ask: Callable[[bytes], Awaitable[tuple[bytes, bytes]]],
) -> Credentials:
    """A fresh key's credentials, by whoever answers a request (PEM) with certificate and authorities."""
    key = new_key()
    certificate, authorities = await ask(make_request(key))
    return Credentials.parse(key + certificate + authorities)
