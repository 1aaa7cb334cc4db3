"""Aim: an upload in parts that was cut off is gone on with, and nothing but the artifact's bytes is kept.

Method: uploads to moto's S3, by HTTP, that end at some part: their process is killed, the connection is cut,
or boto3 has left them so. What the next one sends is read from the server's log. Parts are the smallest that
S3 takes.
"""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest
from fsspec.config import conf
from s3_server import s3_server, user_without
from structlog.testing import capture_logs

from benchmarks.stalling_proxy import StallingProxy
from peerloom.artifacts import multipart_upload, object_store
from peerloom.artifacts.object_store import ObjectStore, open_object_store
from peerloom.artifacts.object_store_errors import StoppedError
from peerloom.errors import UnavailableError
from peerloom.v1.artifact_pb2 import Artifact

PART_BYTES = 5 * 2**20
SIZE_BYTES = 2 * PART_BYTES + 1000  # three parts, the last of which is short
LIMIT_S = 60.0
ONE_AT_A_TIME = {"FSSPEC_S3": '{"max_concurrency": 1}'}
# When each upload was begun, says moto: 2010-11-10 20:48:33.
BEGUN_S = 1_289_422_113.0
DAY_S = 24 * 3600.0


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (multipart_upload, object_store):
        monkeypatch.setattr(module, "PART_BYTES", PART_BYTES)


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else is under way when a part is there: what has come is known."""
    monkeypatch.setitem(conf, "s3", {"max_concurrency": 1})


@pytest.fixture(scope="module")
def requests() -> "SimpleQueue[str]":
    return SimpleQueue()


@pytest.fixture(scope="module")
def s3(requests: "SimpleQueue[str]") -> Iterator[Any]:
    with s3_server(requests) as client:
        client.create_bucket(Bucket="models")
        yield client


@pytest.fixture(scope="module")
def content() -> bytes:
    return Random(0).randbytes(SIZE_BYTES)


@pytest.fixture(scope="module")
def path(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("large") / "model"
    made.write_bytes(content)
    return made


@pytest.fixture(scope="module")
def artifact(content: bytes) -> Artifact:
    return Artifact(digest=hashlib.sha256(content).hexdigest(), size_bytes=SIZE_BYTES, name="large")


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """One of its own for each test, in the bucket "models"."""
    return hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:8]


@pytest.fixture
def store(s3: Any, prefix: str) -> ObjectStore:
    return open_object_store(f"s3://models/{prefix}")


@pytest.fixture
def key(prefix: str, artifact: Artifact) -> str:
    return f"{prefix}/{artifact.digest}"


def open_uploads(s3: Any, prefix: str, bucket: str = "models") -> list[Any]:
    return list(s3.list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads", []))


def sent_parts(requests: "SimpleQueue[str]", key: str) -> list[int]:
    """The numbers of the parts of a key that came until now, from the last time that this was asked."""
    numbers = []
    while f"{key}.json" not in (line := requests.get(timeout=LIMIT_S)):  # its description is put last
        if f"PUT /models/{key}?" in line and (found := re.search("partNumber=([0-9]+)", line)):
            numbers.append(int(found[1]))
    return sorted(numbers)


def is_whole(store: ObjectStore, artifact: Artifact) -> bool:
    read = hashlib.sha256(b"".join(store.pieces(artifact.digest, SIZE_BYTES))).hexdigest()
    return store.index() == {artifact.digest: artifact} and read == artifact.digest


def begun(s3: Any, key: str, parts: dict[int, bytes]) -> str:
    """An upload that has these parts."""
    upload_id: str = s3.create_multipart_upload(Bucket="models", Key=key)["UploadId"]
    for number, body in parts.items():
        s3.upload_part(Bucket="models", Key=key, UploadId=upload_id, PartNumber=number, Body=body)
    return upload_id


def parts_of(content: bytes) -> dict[int, bytes]:
    return {
        number: content[start : start + PART_BYTES]
        for number, start in enumerate(range(0, SIZE_BYTES, PART_BYTES), start=1)
    }


def stop() -> None:
    raise StoppedError


KILLED = """
import sys
from pathlib import Path
from peerloom.artifacts import multipart_upload, object_store
from peerloom.v1.artifact_pb2 import Artifact

def tell():
    print("a part is there", flush=True)
    sys.stdin.readline()

multipart_upload.PART_BYTES = object_store.PART_BYTES = int(sys.argv[5])
artifact = Artifact(digest=sys.argv[3], size_bytes=int(sys.argv[4]))
object_store.open_object_store(sys.argv[1]).put(Path(sys.argv[2]), artifact, tell)
"""


@pytest.mark.parametrize("count", [1, 2])
def test_an_upload_that_is_killed_is_finished_by_the_parts_that_are_missing(
    s3: Any, requests: "SimpleQueue[str]", path: Path, artifact: Artifact, prefix: str, key: str, count: int
) -> None:
    url = f"s3://models/{prefix}"
    command = [
        sys.executable,
        "-c",
        KILLED,
        url,
        str(path),
        artifact.digest,
        str(SIZE_BYTES),
        str(PART_BYTES),
    ]
    environment = {**os.environ, **ONE_AT_A_TIME}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as uploading:
        assert uploading.stdout is not None
        assert uploading.stdin is not None
        for _ in range(count - 1):
            assert uploading.stdout.readline() == b"a part is there\n"
            uploading.stdin.write(b"\n")
            uploading.stdin.flush()
        assert uploading.stdout.readline() == b"a part is there\n"
        uploading.kill()
    store = open_object_store(url)
    assert store.index() == {}, "nothing is seen of it"
    assert [one["Key"] for one in open_uploads(s3, prefix)] == [key]
    store.put(path, artifact, lambda: None)
    sent = sent_parts(requests, key)
    assert sent == [1, 2, 3], "those that the killed one has sent, and the others: each once"
    assert is_whole(store, artifact)
    assert open_uploads(s3, prefix) == []


def test_an_upload_whose_connection_is_lost_is_gone_on_with(
    s3: Any,
    requests: "SimpleQueue[str]",
    path: Path,
    artifact: Artifact,
    prefix: str,
    key: str,
    one_at_a_time: None,
) -> None:
    server = urlsplit(s3.meta.endpoint_url)
    with ExitStack() as proxied, pytest.MonkeyPatch.context() as patch:
        proxy = proxied.enter_context(StallingProxy((str(server.hostname), int(server.port or 0))))
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        cut_off = open_object_store(f"s3://models/{prefix}")
        with pytest.raises(UnavailableError, match="It is tried again"):
            cut_off.put(path, artifact, proxied.close)
    open_object_store(f"s3://models/{prefix}").put(path, artifact, lambda: None)
    assert sent_parts(requests, key) == [1, 2, 3]
    assert open_uploads(s3, prefix) == []


def test_one_that_is_stopped_is_gone_on_with_and_tells_of_each_part_that_it_sends(
    s3: Any, path: Path, artifact: Artifact, prefix: str, one_at_a_time: None
) -> None:
    store = open_object_store(f"s3://models/{prefix}")
    with pytest.raises(StoppedError):
        store.put(path, artifact, stop)
    assert len(open_uploads(s3, prefix)) == 1
    told: list[int] = []
    store.put(path, artifact, lambda: told.append(1))
    assert len(told) == 2
    assert is_whole(store, artifact)


def test_parts_of_other_bytes_or_of_another_size_are_sent_again(
    s3: Any,
    requests: "SimpleQueue[str]",
    path: Path,
    artifact: Artifact,
    content: bytes,
    key: str,
    store: ObjectStore,
) -> None:
    right = parts_of(content)
    others = {1: right[1][:-1] + b"?", 2: right[2], 3: right[3] + b"more", 4: b"beyond the end"}
    begun(s3, key, others)
    store.put(path, artifact, lambda: None)
    assert sent_parts(requests, key) == [1, 1, 2, 3, 3, 4], "the second part alone wasn't sent again"
    assert is_whole(store, artifact)


def test_an_upload_without_a_part_of_use_is_begun_anew(
    s3: Any, path: Path, artifact: Artifact, content: bytes, prefix: str, key: str, store: ObjectStore
) -> None:
    """As where ETags are no MD5, with keys of a KMS."""
    former = begun(s3, key, {1: bytes(PART_BYTES)})
    open_now: list[Any] = []
    store.put(path, artifact, lambda: open_now.extend(open_uploads(s3, prefix)))
    assert len({one["UploadId"] for one in open_now} - {former}) == 1
    assert is_whole(store, artifact)
    assert open_uploads(s3, prefix) == []


def test_of_several_the_newest_is_gone_on_with_and_those_of_other_keys_stay(
    s3: Any,
    requests: "SimpleQueue[str]",
    path: Path,
    artifact: Artifact,
    content: bytes,
    prefix: str,
    key: str,
    store: ObjectStore,
) -> None:
    right = parts_of(content)
    begun(s3, key, {1: right[1], 2: right[2]})
    begun(s3, key, {3: right[3]})
    other = begun(s3, f"{key}-other", {})
    store.put(path, artifact, lambda: None)
    assert sent_parts(requests, key) == [1, 1, 2, 2, 3]
    assert [one["UploadId"] for one in open_uploads(s3, prefix)] == [other]


def test_a_part_that_is_replaced_after_it_was_checked_is_not_used(
    s3: Any, path: Path, artifact: Artifact, content: bytes, prefix: str, key: str, store: ObjectStore
) -> None:
    upload_id = begun(s3, key, {1: parts_of(content)[1]})

    def replace() -> None:
        if any(one["UploadId"] == upload_id for one in open_uploads(s3, prefix)):
            named = {"Bucket": "models", "Key": key, "UploadId": upload_id}
            s3.upload_part(**named, PartNumber=1, Body=bytes(PART_BYTES))

    store.put(path, artifact, replace)
    assert is_whole(store, artifact)
    assert open_uploads(s3, prefix) == []


def test_more_parts_than_are_listed_at_once_are_all_kept(
    s3: Any,
    requests: "SimpleQueue[str]",
    path: Path,
    artifact: Artifact,
    content: bytes,
    key: str,
    store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(multipart_upload, "_LISTED_AT_ONCE", 1)
    begun(s3, key, parts_of(content))
    store.put(path, artifact, lambda: None)
    assert sent_parts(requests, key) == [1, 2, 3], "none was sent again"
    assert is_whole(store, artifact)


@pytest.mark.parametrize("right", ["ListBucketMultipartUploads", "ListMultipartUploadParts"])
def test_without_the_right_to_list_it_is_begun_anew_and_says_once_what_to_allow(
    s3: Any, path: Path, artifact: Artifact, content: bytes, prefix: str, key: str, right: str
) -> None:
    begun(s3, key, {1: parts_of(content)[1]})
    told: list[int] = []
    with user_without(f"s3:{right}"), capture_logs() as logs:
        store = open_object_store(f"s3://models/{prefix}")
        with pytest.raises(StoppedError):
            store.put(path, artifact, stop)
        store.put(path, artifact, lambda: told.append(1))
        assert is_whole(store, artifact)
    assert len(told) == 3
    (warning,) = [one for one in logs if one["event"] == "uploads_not_resumed"]
    assert f"s3:{right}" in warning["allow"]


def test_an_upload_that_the_next_one_would_not_find_is_aborted_when_it_fails(
    s3: Any, path: Path, artifact: Artifact, prefix: str
) -> None:
    with user_without("s3:ListBucketMultipartUploads"):
        store = open_object_store(f"s3://models/{prefix}")
        with pytest.raises(StoppedError):
            store.put(path, artifact, stop)
    assert open_uploads(s3, prefix) == []


def test_what_is_removed_is_not_on_its_way_any_more(
    s3: Any, artifact: Artifact, prefix: str, key: str, store: ObjectStore
) -> None:
    begun(s3, key, {})
    other = begun(s3, f"{key}-other", {})
    store.remove(artifact.digest)
    assert [one["UploadId"] for one in open_uploads(s3, prefix)] == [other]


def test_an_upload_that_nobody_goes_on_with_is_aborted_after_a_week(
    s3: Any, prefix: str, key: str, store: ObjectStore
) -> None:
    begun(s3, key, {})
    others = [begun(s3, place, {}) for place in (f"{prefix}/else", f"{prefix}/folder/{key[-64:]}")]
    store.forget_abandoned_uploads(BEGUN_S + 6 * DAY_S)
    assert len(open_uploads(s3, prefix)) == 3
    store.forget_abandoned_uploads(BEGUN_S + 8 * DAY_S)
    assert {one["UploadId"] for one in open_uploads(s3, prefix)} == set(others), "they aren't ours"
