"""Artifacts in an object store: a bucket, or a folder that several machines share, by any URL of fsspec.

DIGEST holds the bytes and DIGEST.json describes them. The description is written last, so what an upload that
broke has left isn't seen by anybody; an S3 shows the bytes only once all parts are there anyway.
"""

import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from google.protobuf import json_format

from peerloom.artifacts.multipart_upload import PART_BYTES, MultipartUploads
from peerloom.artifacts.object_store_errors import store_errors
from peerloom.errors import ConfigurationError, NotFoundError, UnavailableError
from peerloom.kit.files import sync_folder
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import Artifact

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_SUFFIX = ".json"
_DIGEST = re.compile("[0-9a-f]{64}")
_log = get_logger()


def open_object_store(url: str) -> "ObjectStore":
    """The store at a URL like s3://BUCKET/PREFIX or file:///FOLDER, whose rights are tried out.

    Waits for the network. Raises ConfigurationError for a URL that can't be used, naming what is missing.
    While the store can't be reached nothing is known of its rights: that is told by the log alone.
    """
    _check_url(url)
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError as error:
        raise _lacking(url, "fsspec") from error
    with store_errors(url, "open"):
        try:
            files, prefix = url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)
        except ImportError as error:
            raise _lacking(url, str(error)) from error
    store = ObjectStore(url, files, prefix)
    try:
        store.try_rights()
    except UnavailableError as error:
        _log.warning("object_store_unreachable", url=url, reason=error.message)
    return store


class ObjectStore:
    """Puts, gets and lists artifacts; every method waits for the network. Safe for threads.

    Raises UnavailableError while the store can't be reached, ConfigurationError when it refuses.
    """

    def __init__(self, url: str, files: "AbstractFileSystem", prefix: str) -> None:
        self.url = url.rstrip("/")
        self._files, self._prefix = files, prefix.rstrip("/")
        self._multipart = MultipartUploads(self.url, files) if self._speaks("s3") else None

    def try_rights(self) -> None:
        """Writes, reads, lists and deletes a few bytes."""
        path, content = f"{self._prefix}/.peerloom-{secrets.token_hex(8)}", b"Peerloom tries its rights."
        with store_errors(self.url, "write"):
            self._files.pipe_file(path, content)
        with store_errors(self.url, "read"):
            self._files.cat_file(path)
        with store_errors(self.url, "list"):
            self._files.ls(self._prefix, detail=False)
        with store_errors(self.url, "delete"):
            self._files.rm_file(path)

    def index(self) -> dict[str, Artifact]:
        """All artifacts that are there whole, by their digests."""
        with store_errors(self.url, "list"):
            try:
                found = self._files.ls(self._prefix, detail=True)
            except FileNotFoundError:
                self._check_folder()
                return {}  # a prefix without objects isn't there
        sizes = {_name_of(one["name"]): one["size"] for one in found if one["type"] == "file"}
        digests = [name for name in sizes if _DIGEST.fullmatch(name) and name + _SUFFIX in sizes]
        described, whole = self._descriptions(digests), {}
        for digest in digests:
            artifact = described.get(digest, Artifact())
            if artifact.digest == digest and artifact.size_bytes == sizes[digest]:
                whole[digest] = artifact
            else:
                _log.warning("broken_object_ignored", url=self.url, digest=digest)
        return whole

    def forget_abandoned_uploads(self, now_s: float) -> None:
        """Removes the parts of uploads to an S3 that nobody has gone on with for a week, `now_s` since 1970.

        Nobody sees them, but they cost. Where that isn't allowed, the bucket's own rule has to remove them.
        """
        if self._multipart:
            with store_errors(self.url, "list"):
                self._multipart.forget_abandoned(self._prefix, _DIGEST.fullmatch, now_s)

    def put(self, path: Path, artifact: Artifact, on_part: Callable[[], None]) -> None:
        """Uploads a file; `on_part` is called after it, or between parts where it is large, and may raise.

        In an S3 a large one that was cut off is gone on with: only the parts that aren't there are sent.
        """
        place = self._path(artifact.digest)
        with store_errors(self.url, "write"):
            if self._multipart and artifact.size_bytes >= 2 * PART_BYTES:
                self._multipart.put(path, place, on_part)
            else:
                self._files.put_file(str(path), place, callback=_each_part(on_part))
            self._make_durable(place)
            sidecar = json_format.MessageToJson(artifact, indent=None).encode()
            self._files.pipe_file(place + _SUFFIX, sidecar)
            self._make_durable(place + _SUFFIX)

    def pieces(self, digest: str, size_bytes: int, offset_bytes: int = 0) -> Iterator[bytes]:
        """The bytes of an artifact from an offset on, unchecked, 16 MiB at once. Raises NotFoundError."""
        for start in range(offset_bytes, size_bytes, PART_BYTES):
            with store_errors(self.url, "read"):
                try:
                    end = min(size_bytes, start + PART_BYTES)
                    piece: bytes = self._files.cat_file(self._path(digest), start=start, end=end)
                except FileNotFoundError:
                    self._check_folder()
                    raise NotFoundError.of_name("artifact", digest, ()) from None
            yield piece

    def remove(self, digest: str) -> None:
        """Removes an artifact if it is there, and what of it is on its way; its description goes first."""
        for name in (digest + _SUFFIX, digest):
            with store_errors(self.url, "delete"), suppress(FileNotFoundError):
                self._files.rm_file(self._path(name))
        if self._multipart:
            with store_errors(self.url, "delete"):
                self._multipart.forget(self._path(digest))

    def _descriptions(self, digests: list[str]) -> dict[str, Artifact]:
        with store_errors(self.url, "read"):
            paths = [self._path(digest) + _SUFFIX for digest in digests]
            told: dict[str, Any] = self._files.cat(paths, on_error="return") if paths else {}
            if failed := next((each for each in told.values() if _is_lasting(each)), None):
                raise failed
        return {_name_of(path).removesuffix(_SUFFIX): _parsed(content) for path, content in told.items()}

    def _check_folder(self) -> None:
        """Raises FileNotFoundError for a folder that isn't mounted now: nothing is said of what it has."""
        if self._speaks("file"):
            os.stat(self._prefix)

    def _make_durable(self, path: str) -> None:
        """A folder's files are written through to the disk; a bucket does that by itself."""
        if self._speaks("file"):
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            sync_folder(Path(path).parent)

    def _speaks(self, protocol: str) -> bool:
        spoken = self._files.protocol
        return protocol in ((spoken,) if isinstance(spoken, str) else spoken)

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{name}"


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if not parts.scheme or "::" in url:
        raise ConfigurationError(
            f"artifacts is {url!r}, but must be a URL: s3://BUCKET/PREFIX, or file:///FOLDER."
        )
    if "@" in parts.netloc:
        raise ConfigurationError(
            "artifacts names a secret in its URL, which others see in lists of processes. Leave it out, and "
            "give it by the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
        )
    if parts.scheme == "memory":
        raise ConfigurationError(
            f"artifacts is {url!r}, which lasts as long as this process. Name a bucket or a folder."
        )


def _lacking(url: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"artifacts is {url!r}, which needs a library that isn't installed here ({what}). For S3 and "
        "folders: pip install 'peerloom[object-store]'"
    )


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def _is_lasting(content: object) -> bool:
    # What was removed since it was listed has gone, and no harm done.
    return isinstance(content, Exception) and not isinstance(content, FileNotFoundError)


def _parsed(content: Any) -> Artifact:
    with suppress(json_format.ParseError, TypeError, UnicodeDecodeError):
        return json_format.Parse(content, Artifact())
    return Artifact()


def _each_part(on_part: Callable[[], None]) -> Any:
    from fsspec.callbacks import Callback

    class EachPart(Callback):  # type: ignore[misc]  # fsspec has no types
        def relative_update(self, inc: int = 1) -> None:
            on_part()

    return EachPart()
