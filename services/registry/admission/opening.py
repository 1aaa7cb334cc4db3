"""Opens the door: reads the authorities, makes the registry's own identity, and serves the join port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from grpc import aio

from peerloom.admission.certificates import Authority
from peerloom.errors import UnavailableError
from peerloom.kit.clock import Clock
from peerloom.kit.identity import FILE_NAME, Identity, following_credentials, write_identity
from peerloom.kit.interceptors import CallInterceptor, Gate
from peerloom.kit.logs import get_logger
from peerloom.kit.ownership import REGISTRY_OWNER
from peerloom.kit.principal import Principal, Role
from peerloom.kit.server import Server
from peerloom.kit.server_limits import server_options
from peerloom.services.registry.admission.admission_servicer import AdmissionServicer, JoinServicer
from peerloom.services.registry.admission.authority_folder import AuthorityFolder, OwnIdentities
from peerloom.services.registry.admission.gatekeeper import Gatekeeper
from peerloom.v1.admission_pb2_grpc import (
    add_AdmissionServiceServicer_to_server,
    add_JoinServiceServicer_to_server,
)

OPERATOR_FILE = "operator.pem"
_STOP_GRACE_S = 1.0
_log = get_logger()


def own_identities(state: Path, life_s: float, clock: Clock) -> OwnIdentities:
    """Makes both anew at each start. Raises ConfigurationError for a folder that can't be used."""
    now_s = clock.wall_s()
    authorities = AuthorityFolder(state / "authority", life_s, now_s)

    def make(role: Role, path: Path) -> Identity:
        principal = Principal(role, str(role), REGISTRY_OWNER)
        write_identity(path, authorities.signing(now_s).credentials(principal, now_s, life_s))
        return Identity(path)

    registry = make(Role.REGISTRY, state / FILE_NAME)
    return OwnIdentities(authorities, registry, make(Role.OPERATOR, state / OPERATOR_FILE), clock)


class JoinPort:
    """The one port that asks for no certificate. It has its `address` (host:port) from the beginning.

    Raises UnavailableError if the port is taken.
    """

    def __init__(self, listen: str, authorities: AuthorityFolder, clock: Clock) -> None:
        self._clock = clock
        self._grpc = aio.server(interceptors=[CallInterceptor(Gate())], options=server_options())
        credentials = following_credentials(
            lambda: authorities.signing(clock.wall_s()), self._configuration_of, asks_for_certificates=False
        )
        try:
            port = self._grpc.add_secure_port(listen, credentials)
        except RuntimeError as error:
            raise UnavailableError(
                f"can't listen on {listen} ({error}): another program may hold the port; choose another with "
                "--join-listen, port 0 takes a free one."
            ) from error
        self.address = f"{listen.rpartition(':')[0]}:{port}"

    @property
    def server(self) -> aio.Server:
        """What a servicer is added to, before it starts."""
        return self._grpc

    async def start(self) -> None:
        """Serves from now on."""
        await self._grpc.start()

    async def close(self) -> None:
        """Serves no more."""
        await self._grpc.stop(_STOP_GRACE_S)

    def _configuration_of(self, authority: Authority) -> grpc.ServerCertificateConfiguration:
        pair = authority.join_port_credentials(self._clock.wall_s())
        return grpc.ssl_server_certificate_configuration([pair], authority.certificate)


@asynccontextmanager
async def open_door(door: Gatekeeper, own: OwnIdentities, listen: str, server: Server) -> AsyncIterator[None]:
    """Serves the join port and what the admitted ask of the door, until the block is left."""
    await door.load()
    port = JoinPort(listen, own.authorities, own.clock)
    add_JoinServiceServicer_to_server(JoinServicer(door, server.address), port.server)
    server.add_servicer(add_AdmissionServiceServicer_to_server, AdmissionServicer(door, port.address))
    server.start_task("own certificates", door.keep_own)
    await port.start()
    _log.info("door_opened", join_address=port.address)
    try:
        yield
    finally:
        await port.close()
