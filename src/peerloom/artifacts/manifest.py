"""What an artifact consists of: chunks of a size that follows from the artifact's, each with a SHA-256."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from peerloom.errors import DataLossError
from peerloom.v1.artifact_pb2 import Artifact, Manifest

SMALLEST_CHUNK_BYTES = 1024 * 1024
LARGEST_CHUNK_BYTES = 64 * 1024 * 1024
# A chunk is what is lost with a peer, so it is small; each costs a question and 32 bytes of manifest.
_CHUNKS_AIMED_AT = 512
_READ_BYTES = 1024 * 1024
_WORD_LIMIT = 128


def chunk_bytes_for(size_bytes: int) -> int:
    """A power of two from 1 to 64 MiB: the smallest that makes at most 512 chunks."""
    chunk_bytes = SMALLEST_CHUNK_BYTES
    while chunk_bytes < LARGEST_CHUNK_BYTES and chunk_bytes * _CHUNKS_AIMED_AT < size_bytes:
        chunk_bytes *= 2
    return chunk_bytes


def chunk_count(size_bytes: int) -> int:
    """How many chunks an artifact has; an empty one has none."""
    return -(-size_bytes // chunk_bytes_for(size_bytes))


@dataclass(frozen=True)
class Span:
    """Where a chunk lies in its artifact."""

    offset_bytes: int
    size_bytes: int


def span_of(manifest: Manifest, index: int) -> Span:
    """The place of chunk `index`, from 0."""
    offset_bytes = index * manifest.chunk_bytes
    return Span(offset_bytes, min(manifest.chunk_bytes, manifest.artifact.size_bytes - offset_bytes))


def same_content(one: Manifest, other: Manifest) -> bool:
    """Whether both tell of the same bytes; names and jobs are only words."""
    return facts_of(one) == facts_of(other)


def facts_of(manifest: Manifest) -> str:
    """SHA-256 over all that follows from the bytes: equal for all honest holders."""
    facts = hashlib.sha256(manifest.artifact.digest.encode())
    facts.update(manifest.artifact.size_bytes.to_bytes(8, "big"))
    facts.update(manifest.chunk_bytes.to_bytes(8, "big"))
    for digest in manifest.chunk_digests:
        facts.update(digest)
    return facts.hexdigest()


def check_manifest(manifest: Manifest, digest: str) -> None:
    """Raises DataLossError for one that can't be true of the artifact `digest`, whatever its bytes are."""
    size_bytes = manifest.artifact.size_bytes
    problem = ""
    if manifest.artifact.digest != digest:
        problem = f"it is of the artifact {manifest.artifact.digest[:80]!r}"
    elif size_bytes >= 2**62:
        problem = f"nothing is {size_bytes:,} bytes long"
    elif manifest.chunk_bytes != chunk_bytes_for(size_bytes):
        problem = f"its chunks have {manifest.chunk_bytes:,} bytes instead of {chunk_bytes_for(size_bytes):,}"
    elif len(manifest.chunk_digests) != chunk_count(size_bytes):
        problem = f"it has {len(manifest.chunk_digests):,} chunks instead of {chunk_count(size_bytes):,}"
    elif any(len(one) != hashlib.sha256().digest_size for one in manifest.chunk_digests):
        problem = "a chunk's digest isn't 32 bytes long"
    elif any(len(getattr(manifest.artifact, word)) > _WORD_LIMIT for word in ("name", "job_id", "maker")):
        problem = f"a name in it has more than {_WORD_LIMIT} characters"
    elif not all(getattr(manifest.artifact, word).isprintable() for word in ("name", "job_id", "maker")):
        problem = "a name in it has characters that can't be printed"
    elif size_bytes <= manifest.chunk_bytes and _digest_of_single(manifest) != digest:
        problem = "its only chunk has another digest"
    if problem:
        raise DataLossError(
            f"The manifest of the artifact {digest} can't be true: {problem}.", reason="MANIFEST_LIES"
        )


def _digest_of_single(manifest: Manifest) -> str:
    return manifest.chunk_digests[0].hex() if manifest.chunk_digests else hashlib.sha256().hexdigest()


class ManifestHasher:
    """Makes a manifest of bytes that come in order, `size_bytes` in all."""

    def __init__(self, header: Artifact) -> None:
        self._artifact = Artifact()
        self._artifact.CopyFrom(header)
        self._chunk_bytes = chunk_bytes_for(header.size_bytes)
        self._left_bytes = self._chunk_bytes
        self._whole, self._chunk = hashlib.sha256(), hashlib.sha256()
        self._digests: list[bytes] = []
        self._is_single = header.size_bytes <= self._chunk_bytes

    def update(self, data: bytes | memoryview) -> None:
        """Takes the next bytes."""
        self._whole.update(data)
        if self._is_single:  # then the chunk's digest is the whole's, and is not computed twice
            return
        view = memoryview(data)
        while view:
            piece = view[: self._left_bytes]
            self._chunk.update(piece)
            self._left_bytes -= len(piece)
            view = view[len(piece) :]
            if not self._left_bytes:
                self._end_chunk()

    def digest(self) -> str:
        """The whole's SHA-256 so far, 64 lower-case hexadecimal digits."""
        return self._whole.hexdigest()

    def manifest(self) -> Manifest:
        """The manifest, once all bytes have come; its digest is that of the bytes."""
        if self._is_single:
            self._digests = [self._whole.digest()] if self._artifact.size_bytes else []
        elif self._left_bytes < self._chunk_bytes:
            self._end_chunk()
        self._artifact.digest = self.digest()
        return Manifest(artifact=self._artifact, chunk_bytes=self._chunk_bytes, chunk_digests=self._digests)

    def _end_chunk(self) -> None:
        self._digests.append(self._chunk.digest())
        self._chunk, self._left_bytes = hashlib.sha256(), self._chunk_bytes


def manifest_of_file(path: Path, words: Artifact) -> Manifest:
    """Reads a whole file; digest and size are found here, the rest of `words` is kept."""
    header = Artifact()
    header.CopyFrom(words)
    with path.open("rb") as file:
        header.size_bytes = path.stat().st_size
        hasher = ManifestHasher(header)
        while piece := file.read(_READ_BYTES):
            hasher.update(piece)
    return hasher.manifest()
