"""The registry's door: tokens for those who shall join, who did, and turning them out."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

from peerloom.admission.join_string import JoinString
from peerloom.admission.joining import registry_address
from peerloom.client.conversions.words import time_of
from peerloom.client.loop_thread import SyncFace, blocking
from peerloom.client.remote_services import PAGE_SIZE, Services
from peerloom.client.types.admission import Admitted, Token, TokenRole
from peerloom.errors import FailedPreconditionError
from peerloom.kit.dialing import AdmissionPeer
from peerloom.v1 import admission_pb2


class AsyncDoor:
    """`client.door`. Needs an identity: a login, or the operator's file in the registry's state folder."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def create_token(
        self, role: TokenRole, *, name: str = "", ttl: timedelta = timedelta(minutes=15), owner: str = ""
    ) -> Token:
        """A token that admits one of that role, once, for so long.

        `name` is the id in its certificate ("": one is made); for a node that of one which was admitted
        before. `owner` is for operators, who make tokens for others. Raises PermissionDeniedError.
        """
        request = admission_pb2.CreateTokenRequest(
            role=role, name=name, ttl_s=ttl.total_seconds(), owner=owner
        )
        async with self._peer() as door:
            made = await door.call(door.stub.CreateToken, request)
        place = registry_address(made.join_address, self._services.address.text)
        text = str(JoinString(made.token_id, made.secret, made.authority_sha256, place))
        return Token(made.token_id, role, text, time_of(made, "expires_time"))

    async def admitted(self) -> list[Admitted]:
        """Who was admitted, newest first: all for an operator, else those of the same owner."""
        request, found = admission_pb2.ListAdmittedRequest(page_size=PAGE_SIZE), []
        async with self._peer() as door:
            while True:
                page = await door.call(door.stub.ListAdmitted, request)
                found += [_admitted(each) for each in page.admitted]
                if not page.next_page_token:
                    return found
                request.page_token = page.next_page_token

    async def revoke(self, principal: str) -> Admitted:
        """Turns somebody out, by id or URI, at once; a node's workers with it. Raises NotFoundError."""
        async with self._peer() as door:
            request = admission_pb2.RevokeRequest(principal=principal)
            return _admitted((await door.call(door.stub.Revoke, request)).admitted)

    async def rotate_authority(self) -> str:
        """Begins to replace the registry's authority; the SHA-256 of the new one. Operators only."""
        async with self._peer() as door:
            request = admission_pb2.RotateAuthorityRequest()
            return (await door.call(door.stub.RotateAuthority, request)).authority_sha256

    @asynccontextmanager
    async def _peer(self) -> AsyncGenerator[AdmissionPeer]:
        if self._services.dialer.identity is None:
            raise FailedPreconditionError(
                f"This needs an identity at {self._services.address.text}: log in with `peerloom login "
                "TOKEN`; or, on the registry's machine, use --identity STATE/operator.pem. A registry "
                "without --join-listen has no door, and needs neither.",
                reason="NO_IDENTITY",
            )
        await self._services.become_known()
        async with self._services.dialer.admission(self._services.address.text) as door:
            yield door


class Door(SyncFace[AsyncDoor]):
    """`client.door`, without async."""

    create_token = blocking(AsyncDoor.create_token)
    admitted = blocking(AsyncDoor.admitted)
    revoke = blocking(AsyncDoor.revoke)
    rotate_authority = blocking(AsyncDoor.rotate_authority)


def _admitted(message: admission_pb2.Admitted) -> Admitted:
    joined = time_of(message, "joined_time")
    return Admitted(message.uri, message.role, message.id, message.owner, joined, message.revoked)
