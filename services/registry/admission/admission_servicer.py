"""The calls of peerloom.v1.JoinService and peerloom.v1.AdmissionService."""

from collections.abc import AsyncIterator
from typing import Any

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_name, check_range, check_text
from peerloom.kit.clock import to_timestamp
from peerloom.kit.interceptors import caller
from peerloom.kit.paging import byte_size, encode_token, fill_page, number_key, page_size_of, page_token_after
from peerloom.kit.principal import CHILDREN, Principal, Role
from peerloom.services.registry.admission.admission_store import AdmittedRow
from peerloom.services.registry.admission.decisions import TOKEN_ROLES
from peerloom.services.registry.admission.gatekeeper import Gatekeeper
from peerloom.v1 import admission_pb2 as pb
from peerloom.v1.admission_pb2_grpc import AdmissionServiceServicer, JoinServiceServicer

DEFAULT_TTL_S = 900.0
MAX_TTL_S = 7 * 86_400.0
_SECRET_CHARACTERS = 128


class JoinServicer(JoinServiceServicer):
    """What the join port serves. `registry_address` is where the registry listens."""

    def __init__(self, gatekeeper: Gatekeeper, registry_address: str) -> None:
        self._gatekeeper, self._registry_address = gatekeeper, registry_address

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinResponse:
        check_text("token_id", request.token_id, high=_SECRET_CHARACTERS)
        check_text("secret", "*" * len(request.secret), high=_SECRET_CHARACTERS)
        if request.former_certificate:
            certificate = self._gatekeeper.rejoin(request.former_certificate, request.certificate_request)
        else:
            certificate = await self._gatekeeper.join(
                request.token_id, request.secret, request.certificate_request
            )
        return pb.JoinResponse(
            certificate=certificate,
            authorities=self._gatekeeper.trust.authorities,
            registry_address=self._registry_address,
        )


class AdmissionServicer(AdmissionServiceServicer):
    """What those who were admitted ask of the door. `join_address` is where it listens."""

    def __init__(self, gatekeeper: Gatekeeper, join_address: str) -> None:
        self._gatekeeper, self._join_address = gatekeeper, join_address

    async def CreateToken(self, request: pb.CreateTokenRequest, context: Any) -> pb.CreateTokenResponse:
        maker = _caller()
        role = _role(request.role, TOKEN_ROLES)
        check_range("ttl_s", request.ttl_s, 0, MAX_TTL_S)
        ttl_s, owner = request.ttl_s or DEFAULT_TTL_S, request.owner or maker.owner
        token, secret = await self._gatekeeper.make_token(maker, role, request.name, owner, ttl_s)
        return pb.CreateTokenResponse(
            token_id=token.token_id,
            secret=secret,
            authority_sha256=self._gatekeeper.signing_sha256,
            join_address=self._join_address,
            expires_time=to_timestamp(token.expires_s),
        )

    async def ListAdmitted(self, request: pb.ListAdmittedRequest, context: Any) -> pb.ListAdmittedResponse:
        size, before = page_size_of(request.page_size), number_key(request.page_token)
        rows = await self._gatekeeper.list_admitted(_caller(), before, size)
        page, has_more = fill_page([_message(row) for row in rows], size, byte_size)
        last = rows[len(page) - 1].number if page else 0
        token = encode_token(last) if has_more else page_token_after(rows, size, last)
        return pb.ListAdmittedResponse(admitted=page, next_page_token=token)

    async def Revoke(self, request: pb.RevokeRequest, context: Any) -> pb.RevokeResponse:
        check_text("principal", request.principal, low=1, high=512)
        return pb.RevokeResponse(
            admitted=_message(await self._gatekeeper.revoke(_caller(), request.principal))
        )

    async def RotateAuthority(
        self, request: pb.RotateAuthorityRequest, context: Any
    ) -> pb.RotateAuthorityResponse:
        digest, signs_from_s = self._gatekeeper.rotate()
        return pb.RotateAuthorityResponse(authority_sha256=digest, signs_from_time=to_timestamp(signs_from_s))

    async def Renew(self, request: pb.RenewRequest, context: Any) -> pb.RenewResponse:
        certificate = self._gatekeeper.renew(_caller(), request.certificate_request)
        return pb.RenewResponse(certificate=certificate, authorities=self._gatekeeper.trust.authorities)

    async def CertifyChild(self, request: pb.CertifyChildRequest, context: Any) -> pb.CertifyChildResponse:
        role = _role(request.role, CHILDREN)
        check_name("id", request.id)
        if role is Role.WORKER:
            check_name("job_id", request.job_id)
        elif request.job_id:
            raise InvalidArgumentError.of_field(
                "job_id", request.job_id[:80], "empty for an inference server"
            )
        certificate = self._gatekeeper.certify_child(
            _caller(), role, request.id, request.job_id, request.certificate_request
        )
        return pb.CertifyChildResponse(
            certificate=certificate, authorities=self._gatekeeper.trust.authorities
        )

    async def WatchTrust(
        self, request: pb.WatchTrustRequest, context: Any
    ) -> AsyncIterator[pb.WatchTrustResponse]:
        async for trust in self._gatekeeper.follow_trust():
            yield pb.WatchTrustResponse(authorities=trust.authorities, revoked=trust.revoked)


def _caller() -> Principal:
    principal = caller.get().principal
    assert principal is not None, "a registry with a door lets nobody in without a certificate"
    return principal


def _role(word: str, allowed: tuple[Role, ...]) -> Role:
    if word not in allowed:
        raise InvalidArgumentError.of_field("role", word[:80], f"one of {', '.join(allowed)}")
    return Role(word)


def _message(row: AdmittedRow) -> pb.Admitted:
    principal = row.principal
    return pb.Admitted(
        uri=principal.uri,
        role=principal.role,
        id=principal.id,
        owner=principal.owner,
        joined_time=to_timestamp(row.joined_s),
        revoked=row.revoked_s is not None,
    )
