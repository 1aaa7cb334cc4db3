"""What is uploaded next to an object store, and what needn't be there any more."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from peerloom.v1.artifact_pb2 import Artifact, ArtifactKind

UPLOADS_AT_ONCE = 4
SMALL_BYTES = 64 * 2**20


@dataclass(frozen=True)
class WaitingUpload:
    """An artifact that is here and not yet in the object store; somebody may wait for that."""

    digest: str
    size_bytes: int
    is_awaited: bool


def next_upload(waiting: Sequence[WaitingUpload], under_way: Collection[str]) -> str | None:
    """The digest of what to upload now, and None when nothing is to begin.

    Four go at once, of which three may be larger than 64 MiB: a script doesn't wait for models. What somebody
    waits for comes first, then the smallest, then what has waited longest, which is first in `waiting`.
    """
    if len(under_way) >= UPLOADS_AT_ONCE:
        return None
    large = sum(one.digest in under_way and one.size_bytes > SMALL_BYTES for one in waiting)
    may_be_large = large < UPLOADS_AT_ONCE - 1
    ready = [
        one
        for one in waiting
        if one.digest not in under_way and (may_be_large or one.size_bytes <= SMALL_BYTES)
    ]
    chosen = min(ready, key=lambda one: (not one.is_awaited, one.size_bytes), default=None)
    return chosen.digest if chosen else None


def superseded(known: Iterable[Artifact], job_id: str, used: Collection[str]) -> list[str]:
    """The digests among `known` that are checkpoints of this job and that nobody uses any more.

    By its kind and job, which were told when it first came: a worker that names another job's data as its
    checkpoint doesn't have them removed.
    """
    kind = ArtifactKind.ARTIFACT_KIND_CHECKPOINT
    return [
        one.digest
        for one in known
        if one.kind == kind and one.job_id == job_id and one.digest not in used and not one.pinned
    ]
