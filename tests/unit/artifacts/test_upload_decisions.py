"""What is uploaded next, and which checkpoints needn't be kept."""

from peerloom.artifacts.upload_decisions import SMALL_BYTES, WaitingUpload, next_upload, superseded
from peerloom.v1.artifact_pb2 import Artifact, ArtifactKind

CHECKPOINT, MODEL = ArtifactKind.ARTIFACT_KIND_CHECKPOINT, ArtifactKind.ARTIFACT_KIND_MODEL
SMALL, LARGE = 10, SMALL_BYTES + 1


def waiting(**sizes: int) -> list[WaitingUpload]:
    return [
        WaitingUpload(digest, size_bytes, digest.startswith("awaited"))
        for digest, size_bytes in sizes.items()
    ]


def test_the_smallest_goes_first_and_of_equals_the_oldest() -> None:
    assert next_upload(waiting(a=30, b=20, c=20), []) == "b"


def test_what_somebody_waits_for_goes_before_smaller_ones() -> None:
    assert next_upload(waiting(a=1, awaited=1000), []) == "awaited"


def test_nothing_is_uploaded_twice_at_once() -> None:
    assert next_upload(waiting(a=1, b=2), ["a"]) == "b"
    assert next_upload(waiting(a=1), ["a"]) is None
    assert next_upload([], []) is None


def test_four_go_at_once_and_one_of_them_is_no_large_one() -> None:
    large = {"l1": LARGE, "l2": LARGE, "l3": LARGE, "awaited": LARGE}
    assert next_upload(waiting(**large), ["l1", "l2", "l3"]) is None
    assert next_upload(waiting(**large, s=SMALL), ["l1", "l2", "l3"]) == "s"
    assert next_upload(waiting(**large, s=SMALL, t=SMALL), ["l1", "l2", "l3", "s"]) is None
    assert next_upload(waiting(**large), ["l1", "l2"]) == "awaited"


def test_only_a_jobs_own_unused_checkpoints_are_superseded() -> None:
    known = [
        Artifact(digest="old", kind=CHECKPOINT, job_id="job-1"),
        Artifact(digest="used", kind=CHECKPOINT, job_id="job-1"),
        Artifact(digest="pinned", kind=CHECKPOINT, job_id="job-1", pinned=True),
        Artifact(digest="others", kind=CHECKPOINT, job_id="job-2"),
        Artifact(digest="model", kind=MODEL, job_id="job-1"),
    ]
    assert superseded(known, "job-1", {"used"}) == ["old"]
