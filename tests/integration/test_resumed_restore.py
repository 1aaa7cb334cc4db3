"""Aim: an artifact that was being brought back from an object store comes whole, and not all of it once more.

Method: a folder as the object store, which is read in pieces of 4 bytes and is taken away, or the reader is
stopped, after some of them. The pieces that the next try reads are counted.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from test_artifact_store import put
from test_backed_store import opened

from peerloom.artifacts import object_store
from peerloom.artifacts.backed_store import BackedStore
from peerloom.artifacts.fetch.partial import Partial
from peerloom.artifacts.manifest import SMALLEST_CHUNK_BYTES
from peerloom.artifacts.object_store_errors import StoppedError
from peerloom.errors import ConfigurationError, DataLossError

LIMIT_BYTES = 30
ROOMY_BYTES = 2**23
CONTENT = b"one two three four"  # five pieces, the last of which has two bytes
PIECES = 5


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PART_BYTES", 4)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def digest(tmp_path: Path, shared: Path) -> str:
    """What the object store has; the disk that it came from is lost."""
    first = opened(tmp_path / "first", shared, LIMIT_BYTES)
    stored = put(first, CONTENT).digest
    first.upload(stored)
    return stored


@pytest.fixture
def store(tmp_path: Path, shared: Path, digest: str) -> BackedStore:
    return opened(tmp_path / "disk", shared, LIMIT_BYTES)


def after(pieces: int, act: Callable[[], object]) -> Callable[[], None]:
    """What is called for each piece, and acts once so many have come."""
    come = 0

    def count() -> None:
        nonlocal come
        come += 1
        if come == pieces:
            act()

    return count


def stop() -> None:
    raise StoppedError


def read_pieces(store: BackedStore, digest: str) -> int:
    """How many pieces bring the rest."""
    read: list[int] = []
    store.restore(digest, lambda: read.append(1))
    assert store.path(digest).read_bytes() == CONTENT
    return len(read)


def test_one_that_was_stopped_is_gone_on_with_after_a_restart(
    tmp_path: Path, shared: Path, digest: str, store: BackedStore
) -> None:
    with pytest.raises(StoppedError):
        store.restore(digest, after(2, stop))
    again = opened(tmp_path / "disk", shared, LIMIT_BYTES)
    assert read_pieces(again, digest) == PIECES - 2
    assert again.used_bytes == len(CONTENT)
    assert not (tmp_path / "disk" / f"{digest}.fetch").exists()


def test_one_whose_store_went_away_is_gone_on_with(shared: Path, digest: str, store: BackedStore) -> None:
    away = shared.with_name("away")
    with pytest.raises(ConfigurationError, match="There is no bucket or folder"):
        store.restore(digest, after(3, lambda: shared.rename(away)))
    assert store.used_bytes == 12
    away.rename(shared)
    assert read_pieces(store, digest) == PIECES - 3


def test_what_ends_amid_a_piece_is_gone_on_with_at_its_last_byte(
    tmp_path: Path, shared: Path, digest: str
) -> None:
    """As a process that is killed while it writes leaves it: of 18 bytes, 5 are there and 13 are read."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / f"{digest}.fetch").write_bytes(CONTENT[:5])
    assert read_pieces(opened(tmp_path / "disk", shared, LIMIT_BYTES), digest) == 4


def test_what_was_left_and_is_damaged_is_not_used_and_the_object_not_blamed(
    tmp_path: Path, digest: str, store: BackedStore
) -> None:
    with pytest.raises(StoppedError):
        store.restore(digest, after(2, stop))
    (tmp_path / "disk" / f"{digest}.fetch").write_bytes(bytes(8))
    with capture_logs() as logs:
        assert read_pieces(store, digest) == PIECES - 2 + PIECES
    assert [one["event"] for one in logs if one["log_level"] != "info"] == ["leftover_damaged"]


def test_an_object_that_is_damaged_is_told_of_though_its_beginning_was_right(
    tmp_path: Path, shared: Path, digest: str
) -> None:
    store = opened(tmp_path / "disk", shared, ROOMY_BYTES)
    with pytest.raises(StoppedError):
        store.restore(digest, after(2, stop))
    (shared / digest).write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(DataLossError, match="isn't the artifact of that digest"):
        store.restore(digest)
    assert store.used_bytes == 0
    assert not (tmp_path / "disk" / f"{digest}.fetch").exists()


def test_what_was_left_goes_when_room_is_needed(digest: str, store: BackedStore) -> None:
    with pytest.raises(StoppedError):
        store.restore(digest, after(4, stop))
    assert store.used_bytes == 16
    kept = put(store, b"a" * 15).digest
    assert store.used_bytes == 15
    store.upload(kept)
    assert read_pieces(store, digest) == PIECES


def test_what_a_fetch_from_peers_has_left_is_no_beginning_and_stays(
    tmp_path: Path, shared: Path, digest: str
) -> None:
    """It has its full length, and holes where chunks are missing."""
    (tmp_path / "disk").mkdir()
    left = tmp_path / "disk" / f"{digest}.fetch"
    left.write_bytes(bytes(len(CONTENT)))
    assert read_pieces(opened(tmp_path / "disk", shared, ROOMY_BYTES), digest) == PIECES
    assert left.read_bytes() == bytes(len(CONTENT))


def test_two_at_once_do_not_write_into_one_file(digest: str, store: BackedStore) -> None:
    store.restore(digest, after(2, lambda: store.restore(digest)))
    assert store.path(digest).read_bytes() == CONTENT
    assert store.used_bytes == len(CONTENT)


def test_a_fetch_from_peers_goes_on_with_what_has_come(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "PART_BYTES", SMALLEST_CHUNK_BYTES)
    first, content = opened(tmp_path / "first", shared, ROOMY_BYTES), bytes(range(256)) * 3 * 2**12
    digest = put(first, content).digest  # three chunks
    first.upload(digest)
    store = opened(tmp_path / "disk", shared, ROOMY_BYTES)
    with pytest.raises(StoppedError):
        store.restore(digest, after(2, stop))
    partial = Partial(store.fetch_path(digest), first.manifest(digest))
    partial.take_up()
    assert partial.held == {0, 1}
    partial.close()
