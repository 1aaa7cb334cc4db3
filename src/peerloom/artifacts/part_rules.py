"""Which upload of those that were cut off is gone on with, which of its parts are kept, what is given up."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

# What nobody has gone on with for so long is paid for in vain. Longer than a weekend without a trainer; a
# trainer that comes later still only sends all once more.
ABANDONED_AFTER_S = 7 * 24 * 3600.0


@dataclass(frozen=True)
class OpenUpload:
    """An upload in parts that is neither complete nor aborted."""

    bucket: str
    key: str
    upload_id: str
    begun_at: datetime


@dataclass(frozen=True)
class ListedPart:
    """A part that a bucket has, as it lists it; its ETag may stand in quotes."""

    number: int
    size_bytes: int
    etag: str


@dataclass(frozen=True)
class LocalPart:
    """What a part must be: its size, and the MD5 of its bytes in hexadecimal."""

    size_bytes: int
    md5: str


def newest_of(uploads: Sequence[OpenUpload]) -> OpenUpload | None:
    """The upload that was begun last; of those begun in one moment, the last one listed."""
    return max(reversed(uploads), key=lambda one: one.begun_at, default=None)


def kept_parts(there: Iterable[ListedPart], local: Mapping[int, LocalPart]) -> dict[int, str]:
    """The parts that needn't be sent again, as they have the bytes that are here: their ETags by number.

    An ETag is the MD5 of a part's bytes, unless the bucket encrypts with keys of a KMS or of a customer: then
    no part is kept. `local` has the parts of the file that is sent, numbered from 1.
    """
    return {part.number: part.etag for part in there if _is_same(part, local.get(part.number))}


def abandoned(uploads: Iterable[OpenUpload], now_s: float) -> list[OpenUpload]:
    """The uploads that were begun more than a week before `now_s`, in seconds since 1970."""
    return [one for one in uploads if now_s - one.begun_at.timestamp() > ABANDONED_AFTER_S]


def _is_same(part: ListedPart, local: LocalPart | None) -> bool:
    return local is not None and (part.size_bytes, part.etag.strip('"')) == (local.size_bytes, local.md5)
