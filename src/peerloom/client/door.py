"""The registry's door: tokens for those who shall join, who did, and turning them out."""

from datetime import timedelta

from peerloom.admission.join_string import JoinString
from peerloom.admission.joining import registry_address
from peerloom.client.conversions.words import time_of
from peerloom.client.loop_thread import SyncFace, blocking
from peerloom.client.remote_services import Services
from peerloom.client.types.admission import Admitted, JoinToken, TokenRole
from peerloom.v1 import admission_pb2


class AsyncDoor:
    """`client.door`. Needs an identity: a login, or the operator's file in the registry's state folder."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def create_token(
        self, role: TokenRole, *, name: str = "", ttl: timedelta = timedelta(minutes=15), owner: str = ""
    ) -> JoinToken:
        """A token that admits one of that role, once, for so long.

        `name` is the id in its certificate ("": one is made); for a node that of one which was admitted
        before. `owner` is for operators, who make tokens for others. Raises PermissionDeniedError.
        """
        request = admission_pb2.CreateTokenRequest(
            role=role, name=name, ttl_s=ttl.total_seconds(), owner=owner
        )
        made = await self._services.admission.call(lambda stub: stub.CreateToken, request)
        place = registry_address(made.join_address, self._services.address.text)
        text = str(JoinString(made.token_id, made.secret, made.authority_sha256, place))
        return JoinToken(made.token_id, role, text, time_of(made, "expires_time"))

    async def admitted(self) -> list[Admitted]:
        """Who was admitted, newest first: all for an operator, else those of the same owner."""
        request = admission_pb2.ListAdmittedRequest()
        return [
            _admitted(each)
            for each in await self._services.admission.pages(
                lambda stub: stub.ListAdmitted, request, lambda page: page.admitted
            )
        ]

    async def revoke(self, principal: str) -> Admitted:
        """Turns somebody out, by id or URI, at once; a node's workers with it. Raises NotFoundError."""
        request = admission_pb2.RevokeRequest(principal=principal)
        return _admitted((await self._services.admission.call(lambda stub: stub.Revoke, request)).admitted)

    async def rotate_authority(self) -> str:
        """Begins to replace the registry's authority; the SHA-256 of the new one. Operators only."""
        request = admission_pb2.RotateAuthorityRequest()
        answer = await self._services.admission.call(lambda stub: stub.RotateAuthority, request)
        return answer.authority_sha256


class Door(SyncFace[AsyncDoor]):
    """`client.door`, without async."""

    create_token = blocking(AsyncDoor.create_token)
    admitted = blocking(AsyncDoor.admitted)
    revoke = blocking(AsyncDoor.revoke)
    rotate_authority = blocking(AsyncDoor.rotate_authority)


def _admitted(message: admission_pb2.Admitted) -> Admitted:
    joined = time_of(message, "joined_time")
    return Admitted(message.uri, message.role, message.id, message.owner, joined, message.revoked)
