"""Sending an artifact to a peer and fetching one, with resume and a check of the digest."""

import asyncio
import hashlib
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

from peerloom.artifacts.disk import disk_errors
from peerloom.errors import DataLossError, DeadlineError, PeerloomError, UnavailableError
from peerloom.kit.backoff import Backoff
from peerloom.kit.call_limits import TOO_MANY_CALLS
from peerloom.kit.channel import CHUNK_BYTES
from peerloom.kit.dialing import ArtifactPeer
from peerloom.kit.files import sync_folder
from peerloom.v1.artifact_pb2 import Artifact, GetArtifactRequest, PutArtifactRequest

ATTEMPTS = 4
STALL_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 1.0
_SLOWEST_BYTES_PER_S = 100_000


def digest_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, 64 lower-case hexadecimal digits; reads the whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def patience_s(elapsed_s: float, received_bytes: int) -> float:
    """How long to wait for the next bytes: 30 s, less when the whole has come slower than at 100 kB/s."""
    return min(STALL_S, STALL_S + received_bytes / _SLOWEST_BYTES_PER_S - elapsed_s)


async def put_file(peer: ArtifactPeer, path: Path, header: Artifact) -> Artifact:
    """Sends a file; digest and size are filled in when `header` leaves them empty.

    Returns the artifact as it is kept there. Tries again when the connection breaks or too many upload, each
    of at most 4 attempts for 30 s and the time that the bytes need at 100 kB/s. Raises DataLossError,
    ResourceExhaustedError, UnavailableError or DeadlineError.
    """
    described = Artifact()
    described.CopyFrom(header)
    with disk_errors(path.parent):
        described.digest = header.digest or await asyncio.to_thread(digest_of, path)
        described.size_bytes = header.size_bytes or (await asyncio.to_thread(path.stat)).st_size
    timeout_s = STALL_S + described.size_bytes / _SLOWEST_BYTES_PER_S
    backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            answer = await peer.send(peer.stub.PutArtifact, _parts(path, described), timeout_s)
            artifact: Artifact = answer.artifact
            return artifact
        except PeerloomError as error:
            if attempt == ATTEMPTS or not _passes(error):
                raise
            await asyncio.sleep(backoff.next_pause_s())
    raise AssertionError("the loop returns or raises")


async def get_file(peer: ArtifactPeer, digest: str, destination: Path) -> Artifact:
    """Fetches an artifact into the file `destination`, which appears whole or not at all.

    A broken or stalled stream (30 s) is resumed where it stopped, at most 3 times without any progress.
    Raises NotFoundError, DataLossError (wrong bytes came), UnavailableError or DeadlineError.
    """
    temporary = destination.with_name(f".{destination.name}.{secrets.token_hex(6)}.part")
    try:
        with disk_errors(destination.parent):
            with await asyncio.to_thread(temporary.open, "xb") as file:
                artifact = await _receive_all(peer, digest, file)
                await asyncio.to_thread(_sync, file)
            await asyncio.to_thread(_reveal, temporary, destination)
        return artifact
    finally:
        temporary.unlink(missing_ok=True)


async def _parts(path: Path, header: Artifact) -> AsyncIterator[PutArtifactRequest]:
    yield PutArtifactRequest(header=header)
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield PutArtifactRequest(chunk=chunk)


def _passes(error: PeerloomError) -> bool:
    return isinstance(error, UnavailableError) or error.reason == TOO_MANY_CALLS


class _Receipt:
    """What has come so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.hash = hashlib.sha256()
        self.size_bytes = 0
        self.header = Artifact()

    def take(self, chunk: bytes) -> None:
        self.file.write(chunk)
        self.hash.update(chunk)
        self.size_bytes += len(chunk)


async def _receive_all(peer: ArtifactPeer, digest: str, file: IO[bytes]) -> Artifact:
    receipt, backoff = _Receipt(file), Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    while True:
        before_bytes = receipt.size_bytes
        try:
            await _receive(peer, digest, receipt)
            break
        except PeerloomError as error:
            if not _passes(error) and not isinstance(error, DeadlineError):
                raise
            if receipt.size_bytes > before_bytes:
                backoff.succeeded()
            pause_s = backoff.next_pause_s()
            if backoff.failures == ATTEMPTS:
                raise
            await asyncio.sleep(pause_s)
    if receipt.hash.hexdigest() != digest:
        raise DataLossError(
            f"The {peer.service} at {peer.address} sent {receipt.size_bytes:,} bytes that aren't the "
            f"artifact {digest}. Fetch it from another peer.",
            reason="ARTIFACT_DAMAGED",
        )
    return receipt.header


async def _receive(peer: ArtifactPeer, digest: str, receipt: _Receipt) -> None:
    request = GetArtifactRequest(digest=digest, offset_bytes=receipt.size_bytes)
    stream = peer.stream(peer.stub.GetArtifact, request)
    while True:
        try:
            message: Any = await asyncio.wait_for(anext(stream, None), STALL_S)
        except TimeoutError:
            raise DeadlineError(
                f"The {peer.service} at {peer.address} sent nothing of artifact {digest} for {STALL_S:g} s. "
                "Try again, or fetch it from another peer.",
                reason="TRANSFER_STALLED",
            ) from None
        if message is None:
            return
        if message.HasField("header"):
            receipt.header.CopyFrom(message.header)
        await asyncio.to_thread(receipt.take, message.chunk)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _reveal(temporary: Path, destination: Path) -> None:
    temporary.replace(destination)
    sync_folder(destination.parent)
