"""Who a certificate speaks for: a role, an id, and the owner behind it."""

import re
from dataclasses import dataclass
from enum import StrEnum

from peerloom.errors import InvalidArgumentError

SCHEME = "spiffe://peerloom"


class Role(StrEnum):
    """What a principal may do is decided by its role alone (`kit/roles.py`)."""

    OPERATOR = "operator"  # runs the registry: may do everything that a person may
    USER = "user"  # submits jobs, asks models, lends nodes
    DASHBOARD = "dashboard"  # looks, and changes nothing
    NODE = "node"  # an agent
    WORKER = "worker"  # a process of an agent's, for one job
    INFERENCE = "inference"  # a process of an agent's, that answers with models
    REGISTRY = "registry"
    SELECTOR = "selector"
    TRAINER = "trainer"


# Those that a node's agent asks for: they act for the node, and end with what they were made for.
CHILDREN = (Role.WORKER, Role.INFERENCE)
WORD_LIMIT = "1 to 63 letters, digits, '.', '_' and '-', beginning with a letter or digit"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Principal:
    """`id` is unique within its role; `node` is set for children of a node, `job` for workers.

    `owner` is who made the token that it joined with, or whom an operator named as that.
    """

    role: Role
    id: str
    owner: str
    node: str = ""
    job: str = ""

    @property
    def uri(self) -> str:
        """The URI in its certificate: spiffe://peerloom/OWNER/ROLE/ID[/NODE[/JOB]]."""
        path = [part for part in (self.owner, self.role, self.id, self.node, self.job) if part]
        return "/".join([SCHEME, *path])

    @property
    def host_names(self) -> tuple[str, ...]:
        """The DNS names in its certificate, which whoever dials it may insist on."""
        names = [f"{self.role}.peerloom", f"{self.id}.{self.role}.peerloom", "member.peerloom"]
        return (*names, f"{self.job}.job.peerloom") if self.job else tuple(names)

    @property
    def node_uri(self) -> str:
        """The URI of the node that a child acts for, which has the same owner."""
        return Principal(Role.NODE, self.node, self.owner).uri

    def __str__(self) -> str:
        return f"{self.role} {self.id} of {self.owner}"

    @classmethod
    def parse(cls, uri: str) -> "Principal":
        """The principal in a certificate's URI. Raises InvalidArgumentError for what is none."""
        parts = uri.removeprefix(f"{SCHEME}/").split("/")
        if not uri.startswith(f"{SCHEME}/") or not 3 <= len(parts) <= 5 or parts[1] not in tuple(Role):
            raise InvalidArgumentError.of_field("certificate's URI", uri, f"{SCHEME}/OWNER/ROLE/ID")
        owner, role, *rest = parts
        principal = cls(Role(role), rest[0], owner, *rest[1:])
        principal.check()
        return principal

    def check(self) -> None:
        """Raises InvalidArgumentError for a part that could not stand in a URI and a host name."""
        for name in ("id", "owner", "node", "job"):
            value: str = getattr(self, name)
            if (value or name in ("id", "owner")) and not _WORD.fullmatch(value):
                raise InvalidArgumentError.of_field(name, value, WORD_LIMIT)
