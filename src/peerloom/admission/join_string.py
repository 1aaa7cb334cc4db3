"""The one string that a token is handed over as: plj1.TOKEN.SECRET.DIGEST@HOST:PORT."""

import re
from dataclasses import dataclass, field

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_address

_FORM = re.compile(r"plj1\.([a-z0-9-]{1,32})\.([0-9a-f]{64})\.([0-9a-f]{64})@(.{3,262})")


@dataclass(frozen=True)
class JoinString:
    """What whoever joins has to know: the token, its secret, the authority's digest, and the join port."""

    token_id: str
    secret: str = field(repr=False)
    authority_sha256: str
    address: str

    def __str__(self) -> str:
        return f"plj1.{self.token_id}.{self.secret}.{self.authority_sha256}@{self.address}"

    @classmethod
    def parse(cls, text: str) -> "JoinString":
        """Reads it back. Raises InvalidArgumentError, which doesn't repeat the secret."""
        found = _FORM.fullmatch(text.strip())
        if found is None:
            limit = "the whole string that `peerloom token create` printed, beginning with plj1."
            raise InvalidArgumentError.of_field("join", f"{len(text)} characters", limit)
        check_address("join", found[4])
        return cls(*found.groups())
