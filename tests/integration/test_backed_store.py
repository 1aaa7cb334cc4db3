"""A store over an object store: what isn't there yet stays here, what is there may go and comes back checked.

Most of it is tried over a folder, which fsspec treats as it does a bucket. What differs in a bucket (parts,
rights) is tried with moto's S3, by HTTP; its uploads in parts in test_resumed_upload.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from s3_server import s3_server, user_without
from test_artifact_store import header_of, put

from peerloom.artifacts.backed_store import BackedStore
from peerloom.artifacts.cache import ArtifactCache
from peerloom.artifacts.object_store import open_object_store
from peerloom.artifacts.object_transfers import ObjectTransfers
from peerloom.errors import (
    ConfigurationError,
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    ResourceExhaustedError,
)
from peerloom.v1.artifact_pb2 import ARTIFACT_KIND_CHECKPOINT, Artifact

LIMIT_BYTES = 1000
LIMIT_S = 60.0


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def opened(folder: Path, shared: Path, limit_bytes: int = LIMIT_BYTES) -> BackedStore:
    """A store on a machine's disk over the shared folder, which it has read."""
    store = BackedStore(folder, limit_bytes, open_object_store(f"file://{shared}"))
    store.take_index()
    return store


@pytest.fixture
def store(tmp_path: Path, shared: Path) -> BackedStore:
    return opened(tmp_path / "disk", shared)


def stored(store: BackedStore, data: bytes, header: Artifact | None = None) -> str:
    digest = put(store, data, header).digest
    store.upload(digest)
    return digest


def test_a_new_machine_with_an_empty_disk_has_what_the_former_had(
    tmp_path: Path, shared: Path, store: BackedStore
) -> None:
    digest = stored(store, b"some bytes", header_of(b"some bytes", "a name"))
    other = opened(tmp_path / "other", shared)
    assert [other.describe(digest), *other.has([digest]), *other.list()] == [store.describe(digest)] * 3
    assert other.describe(digest).name == "a name"
    assert other.count == 0
    assert other.is_elsewhere(digest)
    other.restore(digest)
    assert other.path(digest).read_bytes() == b"some bytes"
    assert not other.is_waiting(digest)


def test_what_was_here_before_there_was_an_object_store_is_uploaded(
    tmp_path: Path, shared: Path, store: BackedStore
) -> None:
    digest = put(store, b"some bytes").digest
    again = opened(tmp_path / "disk", shared)
    assert [one.digest for one in again.waiting()] == [digest]


def test_what_is_uploaded_goes_for_room_and_what_is_not_stays(store: BackedStore) -> None:
    first, second = stored(store, b"a" * 600), put(store, b"b" * 300).digest
    third = put(store, b"c" * 600).digest
    assert store.is_elsewhere(first)
    assert store.digests() == (second, third)
    with pytest.raises(ResourceExhaustedError, match=r"900 bytes stay until file:///.* has them"):
        put(store, b"d" * 200)
    with pytest.raises(FailedPreconditionError, match="in use here by its upload to file:///"):
        store.remove(third)
    store.upload(third)
    store.restore(first)
    assert store.is_elsewhere(third)


def test_an_object_that_was_changed_is_told_of_and_not_used(shared: Path, store: BackedStore) -> None:
    digest = stored(store, b"a" * 600)
    stored(store, b"b" * 600)
    (shared / digest).write_bytes(b"x" * 600)
    with pytest.raises(DataLossError, match="isn't the artifact of that digest") as told:
        store.restore(digest)
    assert told.value.reason == "OBJECT_DAMAGED"
    with pytest.raises(NotFoundError):
        store.describe(digest)
    put(store, b"a" * 600)
    assert [one.digest for one in store.waiting()] == [digest], "it is uploaded anew"


def test_a_folder_that_is_not_mounted_now_has_lost_nothing(shared: Path, store: BackedStore) -> None:
    digest = stored(store, b"a" * 600)
    stored(store, b"b" * 600)
    away = shared.with_name("away")
    shared.rename(away)
    for ask in (lambda: store.restore(digest), store.take_index):
        with pytest.raises(ConfigurationError, match="There is no bucket or folder"):
            ask()
    away.rename(shared)
    assert store.restore(digest).digest == digest


def test_what_an_upload_that_broke_has_left_is_seen_by_nobody(shared: Path, store: BackedStore) -> None:
    whole, cut = stored(store, b"whole"), put(store, b"some bytes").digest
    (shared / cut).write_bytes(b"some")
    assert set(store.objects.index()) == {whole}
    (shared / f"{cut}.json").write_bytes((shared / f"{whole}.json").read_bytes())
    assert set(store.objects.index()) == {whole}
    store.upload(cut)
    assert set(store.objects.index()) == {whole, cut}


def test_a_superseded_checkpoint_goes_here_and_there(shared: Path, store: BackedStore) -> None:
    headers = [header_of(data) for data in (b"one", b"two", b"six")]
    for header in headers:
        header.kind = ARTIFACT_KIND_CHECKPOINT
    first, second = stored(store, b"one", headers[0]), put(store, b"two", headers[1]).digest
    used, model = stored(store, b"six", headers[2]), stored(store, b"model")
    store.hold(used, "job-2")
    store.supersede("job-1", [first, second, used, model])
    store.remove_unwanted()
    assert store.waiting() == []
    assert set(store.objects.index()) == {used, model}
    assert set(store.digests()) == {used, model}


def test_a_checkpoint_that_is_superseded_during_its_upload_goes_after_it(
    store: BackedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = header_of(b"one")
    header.kind = ARTIFACT_KIND_CHECKPOINT
    digest, put_there = put(store, b"one", header).digest, store.objects.put

    def put_and_supersede(path: Path, artifact: Artifact, on_part: Callable[[], None]) -> None:
        put_there(path, artifact, on_part)
        store.supersede("job-1", [digest])
        store.remove_unwanted(under_way=[digest])

    monkeypatch.setattr(store.objects, "put", put_and_supersede)
    store.upload(digest)
    assert set(store.objects.index()) == {digest}
    store.remove_unwanted()
    assert store.objects.index() == {}
    assert store.list() == []


def test_removal_is_from_both(shared: Path, store: BackedStore) -> None:
    digest = stored(store, b"some bytes")
    store.remove(digest)
    assert store.list() == []
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("bucket/models", "must be a URL: s3://BUCKET/PREFIX"),
        ("memory://models", "lasts as long as this process"),
        ("s3://key:secret@bucket/models", "artifacts names a secret in its URL"),
        ("nope://bucket", "Protocol not known: nope"),
        ("file:///nowhere/models", "There is no bucket or folder at file:///nowhere/models"),
        ("gs://bucket", "needs a library that isn't installed here"),
    ],
)
def test_a_url_that_cant_be_used_is_refused(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as refused:
        open_object_store(url)
    assert "key:secret" not in refused.value.message


@asynccontextmanager
async def transfers_of(store: BackedStore) -> AsyncIterator[ObjectTransfers]:
    transfers = ObjectTransfers(store)
    running = asyncio.create_task(transfers.run_forever())
    async with asyncio.timeout(LIMIT_S):
        yield transfers
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_while_the_store_is_away_all_is_kept_and_what_is_put_is_not_called_safe(
    tmp_path: Path, shared: Path
) -> None:
    store = BackedStore(tmp_path / "disk", LIMIT_BYTES, open_object_store(f"file://{shared}"))
    away = tmp_path / "away"
    shared.rename(away)  # noqa: ASYNC240  # on a disk of our own
    digest = put(store, b"some bytes").digest
    async with transfers_of(store) as transfers:
        for _ in range(2):
            with pytest.raises(FailedPreconditionError, match="kept by the trainer alone") as told:
                await transfers.settle(digest)
            assert told.value.reason == "NOT_UPLOADED"
        assert transfers.waiting_count == 1
        away.rename(shared)
        await transfers.settle(digest)
        assert transfers.waiting_count == 0
    assert set(store.objects.index()) == {digest}


async def test_what_is_damaged_before_it_is_uploaded_is_not_called_safe(
    tmp_path: Path, store: BackedStore
) -> None:
    digest = put(store, b"some bytes").digest
    (tmp_path / "disk" / digest).write_bytes(b"else")  # on a disk of our own
    async with transfers_of(store) as transfers:
        with pytest.raises(DataLossError, match="Put it again"):
            await transfers.settle(digest)
    assert store.objects.index() == {}


async def test_many_who_ask_bring_an_artifact_back_once_and_a_damaged_one_is_told_of(
    tmp_path: Path, shared: Path, store: BackedStore
) -> None:
    digest, damaged = stored(store, b"some bytes"), stored(store, b"other bytes")
    (shared / damaged).write_bytes(b"wrong bytes")
    other = opened(tmp_path / "other", shared)
    async with transfers_of(other) as transfers:
        cache = ArtifactCache(other, objects=transfers)
        manifests = await asyncio.gather(*(cache.manifest(digest) for _ in range(5)))
        assert {manifest.artifact.digest for manifest, _ in manifests} == {digest}
        assert other.path(digest).read_bytes() == b"some bytes"
        with pytest.raises(DataLossError, match="isn't the artifact of that digest"):
            await cache.bring(damaged)
        await cache.close()


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    with s3_server() as client:
        client.create_bucket(Bucket="models")
        yield client


@pytest.mark.parametrize("right", ["PutObject", "GetObject", "ListBucket", "DeleteObject"])
def test_a_bucket_without_rights_is_refused_with_the_right_that_is_missing(s3: Any, right: str) -> None:
    told = rf"refuses .* at s3://models/x .*s3:{right}"
    with user_without(f"s3:{right}"), pytest.raises(ConfigurationError, match=told):
        open_object_store("s3://models/x")


def test_a_bucket_that_is_not_there_is_refused(s3: Any) -> None:
    with pytest.raises(ConfigurationError, match="There is no bucket or folder at s3://nowhere/models"):
        open_object_store("s3://nowhere/models")


def test_without_credentials_it_says_which_variables_are_missing(
    s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ConfigurationError, match="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        open_object_store("s3://models/x")
