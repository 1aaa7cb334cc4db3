"""Who was admitted, and what admits."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

TokenRole = Literal["node", "user", "trainer", "selector", "dashboard", "operator"]


@dataclass(frozen=True)
class JoinToken:
    """What admits one, once, until `expires_time`; `text` is the whole string to hand over."""

    id: str
    role: TokenRole
    text: str = field(repr=False)
    expires_time: datetime | None


@dataclass(frozen=True)
class Admitted:
    """Somebody who joined; `uri` is what certificates call it, `owner` whose it is."""

    uri: str
    role: str
    id: str
    owner: str
    joined_time: datetime | None
    revoked: bool
