"""Artifacts in an object store: a bucket, or a folder that several machines share, by any URL of fsspec.

DIGEST holds the bytes and DIGEST.json describes them. The description is written last, so what an upload that
broke has left isn't seen by anybody; an S3 shows the bytes only once all parts are there anyway.
"""

import errno
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from google.protobuf import json_format

from peerloom.errors import ConfigurationError, NotFoundError, PeerloomError, UnavailableError
from peerloom.kit.files import sync_folder
from peerloom.kit.logs import get_logger
from peerloom.v1.artifact_pb2 import Artifact

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

PART_BYTES = 16 * 2**20
_SUFFIX = ".json"
_DIGEST = re.compile("[0-9a-f]{64}")
# What the world says where a setting is wrong; anything else may pass.
_REFUSALS = (PermissionError, FileNotFoundError, NotADirectoryError, ImportError, NotImplementedError)
_RIGHTS = {
    "write": "s3:PutObject and s3:AbortMultipartUpload",
    "read": "s3:GetObject",
    "list": "s3:ListBucket",
    "delete": "s3:DeleteObject",
}
_log = get_logger()


class StoppedError(Exception):
    """A transfer was asked to end."""


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
    with _errors(url, "open"):
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

    def try_rights(self) -> None:
        """Writes, reads, lists and deletes a few bytes."""
        path, content = f"{self._prefix}/.peerloom-{secrets.token_hex(8)}", b"Peerloom tries its rights."
        with _errors(self.url, "write"):
            self._files.pipe_file(path, content)
        with _errors(self.url, "read"):
            self._files.cat_file(path)
        with _errors(self.url, "list"):
            self._files.ls(self._prefix, detail=False)
        with _errors(self.url, "delete"):
            self._files.rm_file(path)

    def index(self) -> dict[str, Artifact]:
        """All artifacts that are there whole, by their digests."""
        with _errors(self.url, "list"):
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

    def forget_broken_uploads(self) -> None:
        """Removes the parts that uploads of killed processes left in an S3, where nobody sees but pays them.

        Where that isn't allowed, they stay until the bucket's own rule removes them.
        """
        bucket, _, prefix = self._prefix.partition("/")
        if not self._speaks("s3"):
            return
        try:
            for begun in self._files.list_multipart_uploads(bucket):
                folder, _, name = f"/{begun['Key']}".rpartition("/")
                if folder.lstrip("/") == prefix and _DIGEST.fullmatch(name):
                    self._files.abort_mpu(bucket, begun["Key"], begun["UploadId"])
        except Exception as error:
            _log.warning("broken_uploads_kept", url=self.url, reason=_told(error))

    def put(self, path: Path, artifact: Artifact, on_part: Callable[[], None]) -> None:
        """Uploads a file, in parts where it is large; `on_part` is called between them, and may raise."""
        place = self._path(artifact.digest)
        with _errors(self.url, "write"):
            options = {"chunksize": PART_BYTES} if self._speaks("s3") else {}
            self._files.put_file(str(path), place, callback=_each_part(on_part), **options)
            self._make_durable(place)
            sidecar = json_format.MessageToJson(artifact, indent=None).encode()
            self._files.pipe_file(place + _SUFFIX, sidecar)
            self._make_durable(place + _SUFFIX)

    def pieces(self, digest: str, size_bytes: int) -> Iterator[bytes]:
        """The bytes of an artifact, unchecked, in pieces of 16 MiB. Raises NotFoundError."""
        for start in range(0, size_bytes, PART_BYTES):
            with _errors(self.url, "read"):
                try:
                    end = min(size_bytes, start + PART_BYTES)
                    piece: bytes = self._files.cat_file(self._path(digest), start=start, end=end)
                except FileNotFoundError:
                    self._check_folder()
                    raise NotFoundError.of_name("artifact", digest, ()) from None
            yield piece

    def remove(self, digest: str) -> None:
        """Removes an artifact if it is there; its description goes first."""
        for name in (digest + _SUFFIX, digest):
            with _errors(self.url, "delete"), suppress(FileNotFoundError):
                self._files.rm_file(self._path(name))

    def _descriptions(self, digests: list[str]) -> dict[str, Artifact]:
        with _errors(self.url, "read"):
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


@contextmanager
def _errors(url: str, doing: str) -> Iterator[None]:
    """Turns what fsspec's libraries raise into ours."""
    try:
        yield
    except (PeerloomError, StoppedError):
        raise
    except Exception as error:
        if _is_refusal(error):
            raise _refused(url, doing, error) from error
        raise UnavailableError(
            f"The object store {url} can't be reached to {doing} ({_told(error)}). It is tried again.",
            reason="OBJECT_STORE_UNAVAILABLE",
        ) from error


def _is_refusal(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno == errno.EINVAL:
        return True
    # botocore's own, which is no module of ours: nobody gave credentials, or a part of them.
    return isinstance(error, (*_REFUSALS, ValueError)) or "CredentialsError" in type(error).__name__


def _refused(url: str, doing: str, error: Exception) -> ConfigurationError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        why = f"There is no bucket or folder at {url} ({_told(error)}). Create it, or name another"
    elif "CredentialsError" in type(error).__name__:
        why = (
            f"There are no credentials for {url}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "AWS_PROFILE, where this service is started"
        )
    elif isinstance(error, PermissionError):
        right = f" (on S3: {_RIGHTS[doing]})" if doing in _RIGHTS else ""
        why = (
            f"The object store refuses to let this service {doing} at {url} ({_told(error)}). Grant its "
            f"credentials the right to {doing} there{right}, or give other credentials by the environment"
        )
    else:
        why = f"The object store {url} can't be used to {doing} ({_told(error)})"
    return ConfigurationError(f"{why}.", reason="OBJECT_STORE_REFUSED")


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def _told(error: Exception) -> str:
    return (str(error) or type(error).__name__).rstrip(".")


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
