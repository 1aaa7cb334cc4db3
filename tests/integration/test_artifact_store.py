"""The artifact store keeps what it acknowledged, shows only whole bytes, and stays within its limit."""

import hashlib
import os
import resource
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.artifacts.store import ArtifactStore
from peerloom.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
)
from peerloom.v1.artifact_pb2 import ARTIFACT_KIND_MODEL, Artifact

LIMIT_BYTES = 1000


def header_of(data: bytes, name: str = "") -> Artifact:
    """What an honest sender announces."""
    digest = hashlib.sha256(data).hexdigest()
    return Artifact(digest=digest, size_bytes=len(data), kind=ARTIFACT_KIND_MODEL, name=name, job_id="job-1")


def put(store: ArtifactStore, data: bytes, header: Artifact | None = None) -> Artifact:
    """Stores bytes in two pieces."""
    upload = store.begin(header or header_of(data))
    try:
        upload.write(data[:3])
        upload.write(data[3:])
        return upload.commit()
    finally:
        upload.abort()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


@pytest.fixture
def store(folder: Path) -> ArtifactStore:
    return ArtifactStore(folder, LIMIT_BYTES)


def test_what_was_committed_is_there_also_after_a_restart(folder: Path, store: ArtifactStore) -> None:
    kept = put(store, b"some bytes", header_of(b"some bytes", "a name"))
    for opened in (store, ArtifactStore(folder, LIMIT_BYTES)):
        assert opened.path(kept.digest).read_bytes() == b"some bytes"
        assert opened.describe(kept.digest) == header_of(b"some bytes", "a name")
        assert opened.list() == [kept]


@given(pieces=st.lists(st.binary(max_size=50), max_size=8))
def test_pieces_of_any_size_make_the_same_artifact(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    store = ArtifactStore(tmp_path_factory.mktemp("any"), LIMIT_BYTES)
    data = b"".join(pieces)
    upload = store.begin(header_of(data))
    for piece in pieces:
        upload.write(piece)
    digest = upload.commit().digest
    assert store.path(digest).read_bytes() == data
    assert store.used_bytes == len(data)


def test_wrong_bytes_become_visible_nowhere(folder: Path, store: ArtifactStore) -> None:
    wrong = Artifact(digest="0" * 64, size_bytes=5)
    with pytest.raises(DataLossError, match="damaged on its way"):
        put(store, b"hello", wrong)
    assert not store.has(["0" * 64])
    assert list(folder.iterdir()) == []
    assert store.used_bytes == 0


@pytest.mark.parametrize(("announced_bytes", "message"), [(6, "was cut: 5 bytes came"), (4, "but more came")])
def test_a_wrong_length_is_refused(
    folder: Path, store: ArtifactStore, announced_bytes: int, message: str
) -> None:
    header = header_of(b"hello")
    header.size_bytes = announced_bytes
    with pytest.raises(DataLossError, match=message):
        put(store, b"hello", header)
    assert list(folder.iterdir()) == []


def test_what_a_crash_leaves_behind_is_removed_at_the_next_start(folder: Path, store: ArtifactStore) -> None:
    whole, cut = put(store, b"whole"), put(store, b"will be cut")
    os.truncate(folder / cut.digest, 3)
    lost = put(store, b"will be lost")
    (folder / lost.digest).unlink()
    unfinished = store.begin(header_of(b"never finished"))
    unfinished.write(b"never")
    (folder / f"{'1' * 64}.json").write_text("{ half a sidec")
    opened = ArtifactStore(folder, LIMIT_BYTES)
    assert opened.list() == [whole]
    assert sorted(path.name for path in folder.iterdir()) == [whole.digest, f"{whole.digest}.json"]
    unfinished.abort()


@pytest.mark.parametrize("restart", [False, True])
def test_damage_on_disk_is_noticed_and_removed(folder: Path, store: ArtifactStore, restart: bool) -> None:
    kept = put(store, b"good bytes")
    (folder / kept.digest).write_bytes(b"evil bytes")
    opened = ArtifactStore(folder, LIMIT_BYTES) if restart else store
    with pytest.raises(DataLossError, match="damaged on disk"):
        opened.path(kept.digest)
    with pytest.raises(NotFoundError):
        opened.path(kept.digest)
    assert put(opened, b"good bytes") == kept
    assert opened.has([kept.digest]) == [kept]


def test_the_least_recently_used_goes_first_and_restarts_remember_the_use(
    folder: Path, store: ArtifactStore
) -> None:
    first, second, third = (put(store, bytes([number]) * 300) for number in range(3))
    store.path(first.digest)
    opened = ArtifactStore(folder, LIMIT_BYTES)
    fourth = put(opened, b"4" * 300)
    assert {kept.digest for kept in opened.list()} == {first.digest, third.digest, fourth.digest}
    assert not (folder / second.digest).exists()
    assert opened.used_bytes == 900


def test_a_used_artifact_stays_until_its_last_user_lets_it_go(store: ArtifactStore) -> None:
    used = put(store, b"p" * 600)
    store.hold(used.digest, "job-1")
    store.hold(used.digest, "job-2")
    store.release(used.digest, "job-1")
    with pytest.raises(ResourceExhaustedError, match="limit of 1,000 bytes leaves 400"):
        put(store, b"x" * 500)
    with pytest.raises(FailedPreconditionError, match="in use here by job-2"):
        store.remove(used.digest)
    store.release_all("job-2")
    put(store, b"x" * 500)
    assert not store.has([used.digest])


def test_a_pin_lasts_over_a_restart_until_it_is_taken_back(folder: Path, store: ArtifactStore) -> None:
    pinned = put(store, b"p" * 600)
    assert store.pin(pinned.digest).pinned
    opened = ArtifactStore(folder, LIMIT_BYTES)
    with pytest.raises(ResourceExhaustedError, match="limit of 1,000 bytes leaves 400"):
        put(opened, b"x" * 500)
    with pytest.raises(FailedPreconditionError, match="Unpin it first"):
        opened.remove(pinned.digest)
    assert not opened.unpin(pinned.digest).pinned
    opened.remove(pinned.digest)
    assert list(folder.iterdir()) == []


def test_pins_leave_a_fifth_of_the_room_to_others(store: ArtifactStore) -> None:
    first, second = put(store, b"p" * 600), put(store, b"q" * 300)
    store.pin(first.digest)
    with pytest.raises(ResourceExhaustedError, match="pins may take 800"):
        store.pin(second.digest)
    store.unpin(first.digest)
    assert store.pin(second.digest).pinned


def test_uploads_under_way_count_against_the_limit(store: ArtifactStore) -> None:
    """Two that fit alone but not together: the second is refused when the room is gone, not the first."""
    first, second = store.begin(header_of(b"a" * 600)), store.begin(header_of(b"b" * 600))
    first.write(b"a" * 600)
    with pytest.raises(ResourceExhaustedError):
        second.write(b"b" * 600)
    second.abort()
    assert first.commit().size_bytes == 600
    assert store.used_bytes == 600


def test_the_same_bytes_sent_twice_at_once_are_kept_once(folder: Path, store: ArtifactStore) -> None:
    first, second = store.begin(header_of(b"same")), store.begin(header_of(b"same"))
    first.write(b"same")
    second.write(b"same")
    assert first.commit() == second.commit()
    assert store.used_bytes == 4
    assert len(list(folder.iterdir())) == 2


def test_adding_a_file_finds_digest_and_size(tmp_path: Path, store: ArtifactStore) -> None:
    (tmp_path / "model").write_bytes(b"parameters")
    added = store.add_file(
        tmp_path / "model", Artifact(kind=ARTIFACT_KIND_MODEL, name="mine", job_id="job-1")
    )
    assert added == header_of(b"parameters", "mine")


def test_lists_come_in_pages_ordered_by_digest(store: ArtifactStore) -> None:
    kept = sorted(put(store, secrets.token_bytes(8)).digest for _ in range(5))
    first = [artifact.digest for artifact in store.list("", 2)]
    rest = [artifact.digest for artifact in store.list(first[-1], 10)]
    assert first + rest == kept


def test_an_unknown_digest_is_told_of_no_other(store: ArtifactStore) -> None:
    """Who guesses learns nothing of what is here."""
    kept = put(store, b"known")
    with pytest.raises(NotFoundError) as caught:
        store.path(kept.digest[:-1] + ("0" if kept.digest[-1] != "0" else "1"))
    assert kept.digest not in f"{caught.value.message} {caught.value.metadata}"
    with pytest.raises(InvalidArgumentError):
        store.path("../../etc/passwd")


@contextmanager
def files_at_most(limit_bytes: int) -> Iterator[None]:
    """The kernel refuses longer files, as it refuses any byte on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_said_and_leaves_nothing(folder: Path) -> None:
    store = ArtifactStore(folder, 10**9)
    data = b"x" * 500_000
    upload = store.begin(header_of(data))
    with files_at_most(100_000), pytest.raises(ResourceExhaustedError, match="is full"):
        upload.write(data)
    upload.abort()
    assert list(folder.iterdir()) == []
    assert store.used_bytes == 0


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnavailableError, match="can't be used"):
        ArtifactStore(tmp_path / "file" / "artifacts", LIMIT_BYTES)
