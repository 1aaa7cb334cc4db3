"""Which node holds which artifacts: in memory only, told by the nodes, and told again after a restart.

A node numbers its changes. Its beats carry the newest number, the answers the newest that is known here, so
that a node whose registry forgot all, or missed a change, sees it and tells again. What a node told is
forgotten with its session.
"""

import random
from collections.abc import Sequence

from peerloom.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from peerloom.kit.checks import check_digest, check_range
from peerloom.services.registry.membership.table import Member
from peerloom.v1.registry_pb2 import NODE_STATE_ALIVE, AdvertiseArtifactsRequest

NODE_LIMIT = 10_000
TOTAL_LIMIT = 5_000_000
MESSAGE_DIGESTS = 100_000  # in one change: a node that has more forgot its own limit
DEFAULT_HOLDERS = 20
MAX_HOLDERS = 100
_DIGEST_BYTES = 32


class ArtifactIndex:
    """Holders by digest (32 bytes), and digests by holder."""

    def __init__(self, total_limit: int = TOTAL_LIMIT) -> None:
        self._total_limit = total_limit
        self._holders: dict[bytes, set[Member]] = {}
        self._held: dict[Member, set[bytes]] = {}
        self._versions: dict[Member, int] = {}
        self._total = 0

    def version(self, member: Member) -> int:
        """The number of the node's newest change that is known here; 0: none is."""
        return self._versions.get(member, 0)

    def advertise(self, member: Member, request: AdvertiseArtifactsRequest) -> int:
        """Takes a change of what the node holds; returns how many artifacts of it are known then.

        Raises FailedPreconditionError when the change builds on another, InvalidArgumentError for a bad
        digest, ResourceExhaustedError above 10,000 artifacts of a node or 5,000,000 of all.
        """
        base = request.base_version
        check_range("version", request.version, base + 1, 2**64 - 1)
        if base and base != self.version(member):
            raise FailedPreconditionError(
                f"The change builds on version {base}, and {self.version(member)} is known here. Tell all, "
                "with base_version 0.",
                reason="ARTIFACT_VERSION",
            )
        _check("added", request.added)
        _check("removed", request.removed)
        held = self._held.get(member, set()) if base else set()
        held = (held - set(request.removed)) | set(request.added)
        self._check_room(member, len(held))
        self._replace(member, held)
        self._versions[member] = request.version
        return len(held)

    def find(self, digest: str, limit: int, chance: random.Random) -> tuple[list[Member], int]:
        """At most `limit` (0: 20) holders, those that are alive first, and how many there are in all."""
        check_digest("digest", digest)
        check_range("limit", limit, 0, MAX_HOLDERS)
        limit = limit or DEFAULT_HOLDERS
        holders = sorted(self._holders.get(bytes.fromhex(digest), ()), key=lambda one: one.record.node_id)
        alive = [member for member in holders if member.record.state == NODE_STATE_ALIVE]
        others = [member for member in holders if member.record.state != NODE_STATE_ALIVE]
        for group in (alive, others):
            chance.shuffle(group)
        return [*alive, *others][:limit], len(holders)

    def forget(self, member: Member) -> None:
        """Forgets what a node told, since its session has ended."""
        self._replace(member, set())
        self._versions.pop(member, None)

    def _check_room(self, member: Member, count: int) -> None:
        if count > NODE_LIMIT:
            raise ResourceExhaustedError(
                f"A node may tell of {NODE_LIMIT:,} artifacts, and these are {count:,}. Tell of those that "
                "were used last.",
                reason="ARTIFACT_COUNT",
            )
        total = self._total - len(self._held.get(member, ())) + count
        if total > self._total_limit:
            raise ResourceExhaustedError(
                f"The registry remembers {self._total_limit:,} artifacts of all nodes, its limit.",
                reason="ARTIFACT_COUNT",
            )

    def _replace(self, member: Member, held: set[bytes]) -> None:
        before = self._held.pop(member, set())
        for digest in before - held:
            self._holders[digest].discard(member)
            if not self._holders[digest]:
                del self._holders[digest]
        for digest in held - before:
            self._holders.setdefault(digest, set()).add(member)
        if held:
            self._held[member] = held
        self._total += len(held) - len(before)


def _check(field: str, digests: Sequence[bytes]) -> None:
    check_range(f"number of {field}", len(digests), 0, MESSAGE_DIGESTS)
    for digest in digests:
        if len(digest) != _DIGEST_BYTES:
            raise InvalidArgumentError.of_field(field, digest.hex()[:80], "SHA-256 digests of 32 bytes")
