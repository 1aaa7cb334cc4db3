"""A large file on its way into an S3, in parts: one that was cut off is gone on with at the parts it lacks.

A key is the SHA-256 of what lies there, so its content never changes: all uploads of one key send the same
bytes, whoever began them, and a part that another one has sent is as good as one's own. That is checked all
the same. A part is kept if it has the size and the MD5 of the bytes here, and an upload is completed by the
ETags of its parts: an S3 refuses one that was replaced meanwhile. What comes back is hashed once more.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from peerloom.artifacts.object_store_errors import is_refusal, told
from peerloom.artifacts.part_rules import ListedPart, LocalPart, OpenUpload, abandoned, kept_parts, newest_of
from peerloom.kit.files import read_at
from peerloom.kit.logs import get_logger

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

T = TypeVar("T")
PART_BYTES = 16 * 2**20
_LISTED_AT_ONCE, _PARTS_LIMIT = 1000, 10_000  # S3's own
_RIGHTS = "s3:ListBucketMultipartUploads on the bucket, s3:ListMultipartUploadParts on what is in it"
_log = get_logger()


class MultipartUploads:
    """Uploads in parts by s3fs; every method waits for the network. Safe for threads.

    Raises what s3fs raises, but for rights to list uploads and parts, which needn't be there: without them no
    upload is gone on with, and the log says once what to allow.
    """

    def __init__(self, url: str, files: "AbstractFileSystem") -> None:
        self._url, self._files = url, files
        self._has_told = False

    def put(self, path: Path, place: str, on_part: Callable[[], None]) -> None:
        """Uploads a file of 5 MiB or more to BUCKET/KEY; `on_part` is called after each part, and may raise.

        An upload that fails stays open for the next call, which sends the rest.
        """
        bucket, key, _ = self._files.split_path(place)
        uploads = self._uploads_of(bucket, key)
        newest = newest_of(uploads or [])
        kept = self._kept(path, newest) if newest else {}
        for one in uploads or []:
            if one is not newest or not kept:
                self._abort(_names(one))
        if newest and kept and self._has_finished(path, _names(newest), kept, on_part):
            return
        begun = self._files.call_s3("create_multipart_upload", Bucket=bucket, Key=key)
        names = {"Bucket": bucket, "Key": key, "UploadId": begun["UploadId"]}
        try:
            self._finish(path, names, {}, on_part)
        except Exception:
            if uploads is None:  # the next call wouldn't find it
                self._abort(names)
            raise

    def forget(self, place: str) -> None:
        """Aborts what is open for BUCKET/KEY, where that is allowed."""
        bucket, key, _ = self._files.split_path(place)
        for one in self._uploads_of(bucket, key) or []:
            self._abort(_names(one))

    def forget_abandoned(self, folder: str, is_ours: Callable[[str], object], now_s: float) -> None:
        """Aborts the uploads of our names in BUCKET/PREFIX that were begun over a week before `now_s`."""
        bucket, prefix, _ = self._files.split_path(folder)
        for one in abandoned(self._listed(bucket, prefix) or [], now_s):
            above, _, name = f"/{one.key}".rpartition("/")
            if above.lstrip("/") == prefix and is_ours(name):
                self._abort(_names(one))

    def _has_finished(
        self, path: Path, names: dict[str, str], kept: dict[int, str], on_part: Callable[[], None]
    ) -> bool:
        """False when the store refuses it: it was aborted meanwhile, or a part isn't what it was."""
        _log.info("upload_resumed", url=self._url, key=names["Key"], parts_kept=len(kept))
        try:
            self._finish(path, names, kept, on_part)
        except Exception as error:
            if not is_refusal(error):
                raise
            _log.warning("upload_not_resumed", url=self._url, key=names["Key"], reason=told(error))
            self._abort(names)
            return False
        return True

    def _finish(
        self, path: Path, names: dict[str, str], kept: dict[int, str], on_part: Callable[[], None]
    ) -> None:
        from fsspec.asyn import sync

        numbers, etags = range(1, _part_count(path) + 1), dict(kept)
        with path.open("rb") as file:
            missing = (
                (number, read_at(file.fileno(), PART_BYTES, (number - 1) * PART_BYTES))
                for number in numbers
                if number not in kept
            )
            sync(self._files.loop, self._send, names, missing, etags, on_part)
        parts = [{"PartNumber": number, "ETag": etags[number]} for number in numbers]
        self._files.call_s3("complete_multipart_upload", **names, MultipartUpload={"Parts": parts})

    async def _send(
        self,
        names: dict[str, str],
        missing: Iterator[tuple[int, bytes]],
        etags: dict[int, str],
        on_part: Callable[[], None],
    ) -> None:
        """Sends as many parts at once as s3fs is set to."""

        async def send_next() -> None:
            for number, body in missing:
                answer = await self._files._call_s3("upload_part", **names, PartNumber=number, Body=body)
                etags[number] = answer["ETag"]
                on_part()

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._files.max_concurrency):
                    group.create_task(send_next())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # the first, for which the others were given up

    def _kept(self, path: Path, upload: OpenUpload) -> dict[int, str]:
        count = _part_count(path)
        there = self._allowed(lambda: self._parts_of(upload)) or []
        numbers = [part.number for part in there if part.number <= count]
        return kept_parts(there, {number: _local_part(path, number) for number in numbers})

    def _parts_of(self, upload: OpenUpload) -> list[ListedPart]:
        found: list[ListedPart] = []
        for _ in range(_PARTS_LIMIT // _LISTED_AT_ONCE + 1):
            after = found[-1].number if found else 0
            asked = {**_names(upload), "PartNumberMarker": after, "MaxParts": _LISTED_AT_ONCE}
            page = self._files.call_s3("list_parts", **asked)
            found += [
                ListedPart(one["PartNumber"], one["Size"], one["ETag"]) for one in page.get("Parts", [])
            ]
            if not page.get("IsTruncated"):
                break
        return found

    def _uploads_of(self, bucket: str, key: str) -> list[OpenUpload] | None:
        """Those of this very key; None where nobody may know."""
        listed = self._listed(bucket, key)
        return None if listed is None else [one for one in listed if one.key == key]

    def _listed(self, bucket: str, prefix: str) -> list[OpenUpload] | None:
        def listed() -> list[OpenUpload]:
            # The first thousand. With more of them open, which are of other keys, one more is begun anew.
            page = self._files.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix)
            return [
                OpenUpload(bucket, one["Key"], one["UploadId"], one["Initiated"])
                for one in page.get("Uploads", [])
            ]

        return self._allowed(listed)

    def _allowed(self, ask: Callable[[], list[T]]) -> list[T] | None:
        try:
            return ask()
        except Exception as error:
            if not is_refusal(error):
                raise
            if not self._has_told:
                _log.warning("uploads_not_resumed", url=self._url, reason=told(error), allow=_RIGHTS)
            self._has_told = True
            return None

    def _abort(self, names: dict[str, str]) -> None:
        try:
            self._files.call_s3("abort_multipart_upload", **names)
        except Exception as error:  # it is gone already, or costs until the bucket's own rule removes it
            _log.warning("upload_not_aborted", url=self._url, key=names["Key"], reason=told(error))


def _names(upload: OpenUpload) -> dict[str, str]:
    return {"Bucket": upload.bucket, "Key": upload.key, "UploadId": upload.upload_id}


def _part_count(path: Path) -> int:
    return -(-path.stat().st_size // PART_BYTES)


def _local_part(path: Path, number: int) -> LocalPart:
    with path.open("rb") as file:
        part = read_at(file.fileno(), PART_BYTES, (number - 1) * PART_BYTES)
    return LocalPart(len(part), hashlib.md5(part, usedforsecurity=False).hexdigest())
