"""What is decided about admission: which authority signs, which tokens count, who may make which. Pure."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from peerloom.errors import PermissionDeniedError
from peerloom.kit.principal import Principal, Role

# Roles that a token admits to; children get theirs from their node, the registry from itself.
TOKEN_ROLES = (Role.NODE, Role.USER, Role.TRAINER, Role.SELECTOR, Role.DASHBOARD, Role.OPERATOR)
_A_USERS = (Role.NODE, Role.USER, Role.DASHBOARD)


@dataclass(frozen=True)
class AuthoritySchedule:
    """By their place in the list of authorities, oldest first: which signs, and which count."""

    signing: int
    counting: tuple[int, ...]
    reason: str


def schedule_authorities(made_s: Sequence[float], now_s: float, life_s: float) -> AuthoritySchedule:
    """Which authorities sign and count at `now_s`, of those made at these times (seconds since 1970).

    A new one signs when certificates that were out when it was made have ended (`life_s`): by then everybody
    has renewed, and learned of it. The one before counts until its own last certificates have ended too.
    """
    signing = max((n for n, at in enumerate(made_s) if n == 0 or now_s >= at + life_s), default=0)
    counting = tuple(n for n in range(len(made_s)) if n >= signing or now_s < made_s[n + 1] + 2 * life_s)
    later = len(made_s) - 1 - signing
    reason = f"authority {signing + 1} signs" + (f"; {later} later one waits until all know it" * bool(later))
    return AuthoritySchedule(signing, counting, reason)


@dataclass(frozen=True)
class JoinToken:
    """A token as the registry keeps it: the secret as SHA-256 only. `used_s` is None until it was used."""

    token_id: str
    secret_sha256: str
    principal: Principal
    expires_s: float
    used_s: float | None


def refuse_token(token: JoinToken | None, secret_sha256: str, now_s: float) -> str:
    """Why a token admits nobody; empty when it does. What is wrong is told only to who knows the secret."""
    if token is None or not hmac.compare_digest(token.secret_sha256, secret_sha256):
        return "it is none of this registry's, or it was mistyped"
    if token.used_s is not None:
        return f"it was used {now_s - token.used_s:,.0f} s ago, and a token works once"
    if now_s >= token.expires_s:
        return f"it ended {now_s - token.expires_s:,.0f} s ago"
    return ""


def check_may_make(maker: Principal, role: Role, owner: str) -> None:
    """Raises PermissionDeniedError unless `maker` may make a token of that role for that owner.

    An operator may make all. A user makes its own: nodes, further logins, dashboards.
    """
    if maker.role is Role.OPERATOR:
        return
    if owner != maker.owner:
        raise PermissionDeniedError(
            f"{maker} can't make a token for the owner {owner!r}: only an operator names another owner.",
            reason="FOREIGN_OWNER",
        )
    if role not in _A_USERS:
        raise PermissionDeniedError(
            f"{maker} can't make a token of the role {role}: a user makes {', '.join(_A_USERS)}; ask whoever "
            "runs the registry.",
            reason="ROLE_NOT_GRANTED",
        )
