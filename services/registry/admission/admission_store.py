"""The durable side of admission: tokens, and who was admitted. Called from the SQL thread."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from peerloom.kit.database import Database
from peerloom.kit.principal import Principal
from peerloom.services.registry.admission.decisions import JoinToken
from peerloom.services.registry.tables import admitted, join_tokens

_USED_KEPT_S = 7 * 86_400.0  # so long somebody who uses a token twice is told that


@dataclass(frozen=True)
class AdmittedRow:
    """Somebody who joined. Times are seconds since 1970; `revoked_s` is None for who wasn't turned out."""

    number: int
    principal: Principal
    joined_s: float
    revoked_s: float | None


class AdmissionStore:
    """Tokens and admitted principals in the registry's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_token(self, token: JoinToken, made_by: str, now_s: float) -> None:
        """Keeps a new token, and forgets those that ended long ago."""
        row = {
            "token_id": token.token_id,
            "proof_sha256": token.secret_sha256,
            "uri": token.principal.uri,
            "made_by": made_by,
            "expires_s": token.expires_s,
        }
        with self._database.write() as connection:
            gone = join_tokens.c.expires_s < now_s - _USED_KEPT_S
            connection.execute(sa.delete(join_tokens).where(gone))
            connection.execute(sa.insert(join_tokens), [row])

    def find_token(self, token_id: str) -> JoinToken | None:
        """A token by its id."""
        query = sa.select(join_tokens).where(join_tokens.c.token_id == token_id)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        return JoinToken(row.token_id, row.proof_sha256, Principal.parse(row.uri), row.expires_s, row.used_s)

    def admit(self, token: JoinToken, now_s: float) -> bool:
        """Marks a token used and its principal admitted; False when somebody else was faster."""
        unused = sa.and_(join_tokens.c.token_id == token.token_id, join_tokens.c.used_s.is_(None))
        with self._database.write() as connection:
            used = connection.execute(sa.update(join_tokens).where(unused).values(used_s=now_s))
            if used.rowcount != 1:
                return False
            uri = token.principal.uri
            # Who was turned out and gets a new token is in again.
            connection.execute(sa.delete(admitted).where(admitted.c.uri == uri))
            connection.execute(sa.insert(admitted), [{"uri": uri, "joined_s": now_s}])
        return True

    def find(self, name: str) -> list[AdmittedRow]:
        """Who has this URI, or this id."""
        columns = admitted.c
        query = sa.select(admitted).where(
            sa.or_(columns.uri == name, columns.uri.like(f"%/{_escaped(name)}", escape="\\"))
        )
        return self._rows(query)

    def revoke(self, uri: str, now_s: float) -> AdmittedRow:
        """Notes that somebody who was found was turned out; returns it as it is now."""
        with self._database.write() as connection:
            row = sa.update(admitted).where(admitted.c.uri == uri, admitted.c.revoked_s.is_(None))
            connection.execute(row.values(revoked_s=now_s))
        return self.find(uri)[0]

    def revoked(self) -> list[str]:
        """The URIs of all who were turned out."""
        query = sa.select(admitted).where(admitted.c.revoked_s.is_not(None))
        return [row.principal.uri for row in self._rows(query)]

    def page(self, owner: str, before: int | None, limit: int) -> list[AdmittedRow]:
        """The `limit` newest numbered below `before`; of one owner, or with "" of all."""
        query = sa.select(admitted).order_by(admitted.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(admitted.c.number < before)
        if owner:
            query = query.where(admitted.c.uri.like(f"spiffe://peerloom/{_escaped(owner)}/%", escape="\\"))
        return self._rows(query)

    def _rows(self, query: sa.Select[Any]) -> list[AdmittedRow]:
        with self._database.read() as connection:
            found = list(connection.execute(query))
        return [AdmittedRow(r.number, Principal.parse(r.uri), r.joined_s, r.revoked_s) for r in found]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
