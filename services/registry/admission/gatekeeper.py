"""The door: makes tokens, admits, renews and turns out; and tells everybody of what counts."""

import asyncio
import dataclasses
import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress

from cryptography import x509

from peerloom.admission.certificates import REQUEST_LIMIT_BYTES, request_key_of
from peerloom.errors import InvalidArgumentError, NotFoundError, PermissionDeniedError
from peerloom.kit.clock import Clock
from peerloom.kit.identity import Identity, principal_of
from peerloom.kit.ids import new_node_id, new_secret, new_token_id
from peerloom.kit.logs import get_logger
from peerloom.kit.principal import Principal, Role
from peerloom.kit.roles import check_owns
from peerloom.services.registry.admission.admission_store import AdmissionStore, AdmittedRow
from peerloom.services.registry.admission.authority_folder import OwnIdentities
from peerloom.services.registry.admission.decisions import (
    JoinToken,
    check_may_make,
    refuse_token,
)
from peerloom.services.registry.store import RunSql

REJOIN_S = 30 * 86_400.0
_LOOK_S = 60.0  # at most so long after an authority begins to sign, or counts no longer, all are told
_log = get_logger()


@dataclasses.dataclass(frozen=True)
class Trust:
    """What counts: the authorities (PEM, the signing one first), and the URIs of who was turned out."""

    authorities: bytes
    revoked: tuple[str, ...]


class Gatekeeper:
    """Who may come in. Certificates live for `life_s` seconds; the registry's own are among `own`.

    Tokens go by `clock`, which registries that take over from each other share.
    """

    def __init__(
        self, own: OwnIdentities, store: AdmissionStore, run_sql: RunSql, clock: Clock, life_s: float
    ) -> None:
        self._own, self._authorities = own, own.authorities
        self._store, self._run_sql = store, run_sql
        self.clock, self._life_s = clock, life_s
        self._look_s = min(_LOOK_S, life_s / 10)
        self._revoked: set[str] = set()
        self._changed = asyncio.Event()

    async def load(self) -> None:
        """Reads who was turned out."""
        self._revoked.update(await self._run_sql(self._store.revoked))
        self._own.registry.revoked = frozenset(self._revoked)

    async def make_token(
        self, maker: Principal, role: Role, name: str, owner: str, ttl_s: float
    ) -> tuple[JoinToken, str]:
        """A fresh token and its secret. Raises PermissionDeniedError; InvalidArgumentError for a bad name."""
        if role is Role.NODE and name:
            owner = await self._owner_of_node(maker, name, owner)
        check_may_make(maker, role, owner)
        if role is Role.NODE and not name:
            name = new_node_id()
        principal = Principal(role, name or f"{role}-{new_token_id()[-6:]}", owner)
        principal.check()
        secret, now_s = new_secret(), self.clock.wall_s()
        token = JoinToken(new_token_id(), _sha256(secret), principal, now_s + ttl_s, None)
        await self._run_sql(self._store.add_token, token, maker.uri, now_s)
        _log.info("token_made", token=token.token_id, admits=principal.uri, made_by=maker.uri)
        return token, secret

    async def _owner_of_node(self, maker: Principal, node_id: str, owner: str) -> str:
        """Whose a node is that was admitted before: it keeps its owner, who makes another token for it."""
        known: list[AdmittedRow] = await self._run_sql(self._store.find, node_id)
        nodes = [
            row.principal for row in known if (row.principal.role, row.principal.id) == (Role.NODE, node_id)
        ]
        if not nodes:
            raise NotFoundError.of_name("admitted node", node_id, ())
        check_owns(maker, nodes[0].owner, node_id)
        if owner not in (maker.owner, nodes[0].owner):
            limit = f"{nodes[0].owner}, whose {node_id} is"
            raise InvalidArgumentError.of_field("owner", owner, limit)
        return nodes[0].owner

    async def join(self, token_id: str, secret: str, request: bytes) -> bytes:
        """The certificate that a token admits to. Raises PermissionDeniedError, InvalidArgumentError."""
        request_key_of(request)  # a token isn't used up by a request that can't be signed
        token: JoinToken | None = await self._run_sql(self._store.find_token, token_id)
        refusal = refuse_token(token, _sha256(secret), self.clock.wall_s())
        if not refusal and token is not None:
            if await self._run_sql(self._store.admit, token, self.clock.wall_s()):
                self._revoked.discard(token.principal.uri)
                self._tell()
                _log.info("admitted", principal=token.principal.uri, token=token_id)
                return self._sign(request, token.principal)
            refusal = "somebody else used it at the same moment"
        raise PermissionDeniedError(
            f"This token admits nobody: {refusal}. Ask for a new one, which `peerloom token create` prints.",
            reason="TOKEN_REFUSED",
        )

    def rejoin(self, former: bytes, request: bytes) -> bytes:
        """A fresh certificate for who holds the key of an ended one. Raises PermissionDeniedError."""
        key = request_key_of(request)
        try:
            if len(former) > REQUEST_LIMIT_BYTES:
                raise ValueError("it is too long")
            certificate = x509.load_pem_x509_certificate(former)
            principal = principal_of(certificate)
        except ValueError as error:
            limit = "a certificate of this registry's (PEM)"
            raise InvalidArgumentError.of_field("former_certificate", str(error)[:200], limit) from error
        ended_s = self._own.clock.wall_s() - certificate.not_valid_after_utc.timestamp()
        is_ours = self._authorities.signed(certificate) and certificate.public_key() == key
        may_return = principal.role not in (Role.WORKER, Role.INFERENCE, Role.REGISTRY)
        if not is_ours or not may_return or ended_s > REJOIN_S or principal.uri in self._revoked:
            raise PermissionDeniedError(
                f"The certificate of {principal} admits nobody any more: it isn't this registry's, was "
                f"revoked, or ended more than {REJOIN_S / 86_400:.0f} days ago. Ask for a token, which "
                "`peerloom token create` prints.",
                reason="CERTIFICATE_REFUSED",
            )
        return self._sign(request, principal)

    def renew(self, caller: Principal, request: bytes) -> bytes:
        """A fresh certificate for a caller that showed one."""
        return self._sign(request, caller)

    def certify_child(self, node: Principal, role: Role, id_: str, job: str, request: bytes) -> bytes:
        """A certificate for a process of the calling node. Raises InvalidArgumentError for a bad name."""
        return self._sign(request, Principal(role, id_, node.owner, node.id, job))

    async def revoke(self, caller: Principal, name: str) -> AdmittedRow:
        """Turns somebody out. Raises NotFoundError for nobody, PermissionDeniedError for another owner's."""
        found: list[AdmittedRow] = await self._run_sql(self._store.find, name)
        if len(found) > 1:
            uris = ", ".join(row.principal.uri for row in found[:5])
            raise InvalidArgumentError.of_field("principal", name, f"one principal's; it fits {uris}")
        if not found:
            raise NotFoundError.of_name("principal", name, ())
        check_owns(caller, found[0].principal.owner, name)
        uri = found[0].principal.uri
        row: AdmittedRow = await self._run_sql(self._store.revoke, uri, self.clock.wall_s())
        self._revoked.add(uri)
        self._tell()
        _log.warning("revoked", principal=uri, by=caller.uri)
        return row

    async def list_admitted(self, caller: Principal, before: int | None, limit: int) -> list[AdmittedRow]:
        """Who was admitted, newest first: all for an operator, else what the caller owns."""
        owner = "" if caller.role is Role.OPERATOR else caller.owner
        rows: list[AdmittedRow] = await self._run_sql(self._store.page, owner, before, limit)
        return rows

    def rotate(self) -> tuple[str, float]:
        """Makes another authority; its digest, and from when on it signs (seconds since 1970)."""
        authority = self._authorities.make_next(self._own.clock.wall_s())
        self._tell()
        _log.warning("authority_made", sha256=authority.digest, signs_from_s=self._authorities.signs_from_s())
        return authority.digest, self._authorities.signs_from_s()

    @property
    def trust(self) -> Trust:
        """What counts now."""
        return Trust(self._authorities.counting(self._own.clock.wall_s()), tuple(sorted(self._revoked)))

    @property
    def signing_sha256(self) -> str:
        """The digest of the authority that signs now: what tokens say of it."""
        return self._authorities.signing(self._own.clock.wall_s()).digest

    async def follow_trust(self) -> AsyncIterator[Trust]:
        """What counts: now, and after each change."""
        told: Trust | None = None
        while True:
            changed, trust = self._changed, self.trust
            if trust != told:
                yield trust
            told = trust
            await self._wait(changed)

    async def keep_own(self) -> None:
        """Renews the registry's certificate and the operator's, and follows rotations, until cancelled."""
        while True:
            changed = self._changed
            for identity in (self._own.registry, self._own.operator):
                self._renew_if_due(identity)
            await self._wait(changed)

    async def _wait(self, changed: asyncio.Event) -> None:
        # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._look_s):
                await changed.wait()

    def _renew_if_due(self, identity: Identity) -> None:
        now_s, authorities = self._own.clock.wall_s(), self.trust.authorities
        if now_s >= identity.current.renewal_s or identity.current.authorities != authorities:
            signing = self._authorities.signing(now_s)
            fresh = signing.credentials(identity.principal, now_s, self._life_s)
            identity.renew(dataclasses.replace(fresh, authorities=authorities))

    def _sign(self, request: bytes, principal: Principal) -> bytes:
        now_s = self._own.clock.wall_s()
        return self._authorities.signing(now_s).sign(request, principal, now_s, self._life_s)

    def _tell(self) -> None:
        self._own.registry.revoked = frozenset(self._revoked)
        self._changed.set()
        self._changed = asyncio.Event()


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
