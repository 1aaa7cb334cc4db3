"""What a manifest must be to be believed, and how bits, limits and evidence are reckoned."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.artifacts.fetch.sources import Source, most_told, packed, unpacked
from peerloom.artifacts.fetch.throttle import Throttle
from peerloom.artifacts.manifest import (
    LARGEST_CHUNK_BYTES,
    SMALLEST_CHUNK_BYTES,
    ManifestHasher,
    check_manifest,
    chunk_bytes_for,
    chunk_count,
    span_of,
)
from peerloom.errors import DataLossError
from peerloom.kit.clock import ManualClock
from peerloom.kit.dialing import ArtifactPeer, Dialer
from peerloom.v1.artifact_pb2 import Artifact, ArtifactHolder, Manifest

MIB = 2**20


def manifest_of(content: bytes, piece_bytes: int = 700_001) -> Manifest:
    hasher = ManifestHasher(Artifact(size_bytes=len(content), name="thing"))
    for at in range(0, len(content), piece_bytes):
        hasher.update(content[at : at + piece_bytes])
    return hasher.manifest()


@pytest.mark.parametrize(
    ("size_bytes", "chunk_bytes", "count"),
    [
        (0, MIB, 0),
        (1, MIB, 1),
        (MIB, MIB, 1),
        (MIB + 1, MIB, 2),
        (512 * MIB, MIB, 512),
        (512 * MIB + 1, 2 * MIB, 257),
        (2**40, LARGEST_CHUNK_BYTES, 2**14),
    ],
)
def test_chunks_follow_from_the_size(size_bytes: int, chunk_bytes: int, count: int) -> None:
    assert (chunk_bytes_for(size_bytes), chunk_count(size_bytes)) == (chunk_bytes, count)


@pytest.mark.parametrize("size_bytes", [0, 5, MIB, 2 * MIB, 2 * MIB + 3])
def test_a_manifest_tells_each_chunk_and_the_whole(size_bytes: int) -> None:
    content = bytes(range(256)) * (size_bytes // 256 + 1)
    content = content[:size_bytes]
    manifest = manifest_of(content)
    digest = hashlib.sha256(content).hexdigest()
    check_manifest(manifest, digest)
    assert (manifest.artifact.digest, manifest.artifact.name) == (digest, "thing")
    for index, chunk in enumerate(manifest.chunk_digests):
        span = span_of(manifest, index)
        piece = content[span.offset_bytes : span.offset_bytes + span.size_bytes]
        assert hashlib.sha256(piece).digest() == chunk


def changed(content: bytes, **fields: object) -> Manifest:
    manifest = manifest_of(content)
    for name, value in fields.items():
        if name in ("size_bytes", "digest", "name"):
            setattr(manifest.artifact, name, value)
        elif name == "chunk_digests":
            manifest.ClearField("chunk_digests")
            manifest.chunk_digests.extend(value)  # type: ignore[arg-type]  # wrong on purpose
        else:
            setattr(manifest, name, value)
    return manifest


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"digest": "0" * 64}, "it is of the artifact"),
        ({"size_bytes": 2**63}, "bytes long"),
        ({"size_bytes": 2}, "2 chunks instead of 1"),
        ({"chunk_bytes": 5}, "its chunks have 5 bytes instead of 1,048,576"),
        ({"chunk_digests": []}, "0 chunks instead of 2"),
        ({"chunk_digests": [b"short"] * 2}, "32 bytes long"),
        ({"name": "n" * 129}, "more than 128 characters"),
    ],
)
def test_a_manifest_that_cannot_be_true_is_refused(fields: dict[str, object], words: str) -> None:
    content = b"x" * (SMALLEST_CHUNK_BYTES + 1)
    with pytest.raises(DataLossError, match=words):
        check_manifest(changed(content, **fields), hashlib.sha256(content).hexdigest())


def test_a_single_chunk_must_have_the_artifact_s_digest() -> None:
    with pytest.raises(DataLossError, match="only chunk"):
        check_manifest(changed(b"x", chunk_digests=[bytes(32)]), hashlib.sha256(b"x").hexdigest())


@given(held=st.frozensets(st.integers(0, 40)), count=st.integers(0, 41))
def test_held_chunks_travel_as_bits(held: frozenset[int], count: int) -> None:
    inside = frozenset(index for index in held if index < count)
    assert unpacked(packed(inside, count), count) == inside
    assert unpacked(b"\xff" * 100, count) == frozenset(range(count)), "bits beyond the end mean nothing"


def test_the_manifest_of_most_whole_holders_is_tried_first(peer: ArtifactPeer) -> None:
    true, lie = manifest_of(b"x" * 2 * MIB), changed(b"x" * 2 * MIB, chunk_digests=[bytes(32)] * 2)

    def source(name: str, manifest: Manifest, held: frozenset[int] | None = None) -> Source:
        return Source(ArtifactHolder(address=name), peer, manifest, held, 0)

    assert most_told([source("a", lie), source("b", true), source("c", true)]) == true
    partial = [source(f"p{number}", lie, frozenset()) for number in range(5)]
    assert most_told([*partial, source("b", true)]) == true
    assert most_told([]) is None


@pytest.fixture
async def peer() -> ArtifactPeer:

    return Dialer().artifacts("127.0.0.1:9", "peer")


def test_a_throttle_lets_its_limit_through_and_no_more() -> None:
    """1000 bytes a second, asked for 100 bytes at once by whoever comes: the tenth waits 0.85 s."""
    clock = ManualClock()
    clock.advance(100)
    throttle = Throttle(1000.0, clock)
    waits = [throttle.due_s(100) for _ in range(11)]
    assert waits[0] == 0
    assert waits[10] == pytest.approx(1.0, abs=0.051)
    assert Throttle(0.0, clock).due_s(10**12) == 0
