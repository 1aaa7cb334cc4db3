"""What others sent reaches a terminal as what it is, and moves nothing there."""

import pytest
from grpc import StatusCode, aio

from peerloom.artifacts.manifest import check_manifest
from peerloom.artifacts.named_holders import check_holders
from peerloom.errors import DataLossError, InvalidArgumentError
from peerloom.kit.status import error_from_rpc
from peerloom.v1.artifact_pb2 import Artifact, ArtifactHolder, Manifest

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
CLEAR_SCREEN = "\x1b[2J"


def test_a_peer_s_error_is_told_in_printable_words() -> None:
    metadata = aio.Metadata()
    error = aio.AioRpcError(StatusCode.NOT_FOUND, metadata, metadata, f"none{CLEAR_SCREEN}")
    assert r"none\u001b[2J" in error_from_rpc(error, "a:1", "peer").message


def test_a_manifest_with_such_a_name_is_not_believed() -> None:
    artifact = Artifact(digest=EMPTY, name=CLEAR_SCREEN)
    with pytest.raises(DataLossError, match="can't be printed"):
        check_manifest(Manifest(artifact=artifact, chunk_bytes=2**20), EMPTY)


@pytest.mark.parametrize(
    ("holder", "field"),
    [
        (ArtifactHolder(address="unix:80"), "holders.address"),
        (ArtifactHolder(address="a:1", name=CLEAR_SCREEN), "holders.name"),
        (ArtifactHolder(address="a:1", node_id="n" * 65), "holders.node_id"),
    ],
)
def test_a_holder_that_cannot_be_is_refused_with_its_field(holder: ArtifactHolder, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        check_holders("holders", [holder])
    assert refusal.value.metadata["field"] == field
