"""What a node may say of itself: each field has a limit, and a refusal names both."""

import hashlib
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from peerloom.errors import InvalidArgumentError
from peerloom.services.registry.membership.application import check_application
from peerloom.v1.common_pb2 import Accelerator, MachineSpeed
from peerloom.v1.registry_pb2 import NodeSpec, RegisterRequest

REQUEST_ID = "6f1c2c1e-6a52-4e0e-9a2f-3f6a3f0f8d11"


def request(spec: dict[str, Any], **fields: Any) -> RegisterRequest:
    """A valid registration with some fields replaced."""
    good = {"name": "ada", "address": "127.0.0.1:7500", "slots": 2}
    filled = {"node_key": "k" * 16, "request_id": REQUEST_ID, **fields}
    return RegisterRequest(spec=NodeSpec(**{**good, **spec}), **filled)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"name": ""}, "spec.name"),
        ({"name": "Ada"}, "spec.name"),
        ({"name": "-ada"}, "spec.name"),
        ({"name": "a" * 64}, "spec.name"),
        ({"name": "node-0123456789ab"}, "spec.name"),
        ({"address": ""}, "spec.address"),
        ({"address": "host"}, "spec.address"),
        ({"address": "host:0"}, "spec.address"),
        ({"slots": 1025}, "spec.slots"),
        ({"accelerators": [Accelerator(kind="", count=1)]}, "spec.accelerators[0].kind"),
        ({"accelerators": [Accelerator(kind="cpu")]}, "spec.accelerators[0].count"),
        ({"accelerators": [Accelerator(kind="cpu", count=1)] * 65}, "number of spec.accelerators"),
        ({"speed": MachineSpeed(matmul_gflops=-1)}, "spec.speed.matmul_gflops"),
        ({"speed": MachineSpeed(disk_bytes_per_s=float("nan"))}, "spec.speed.disk_bytes_per_s"),
        ({"speed": MachineSpeed(memory_bytes_per_s=float("inf"))}, "spec.speed.memory_bytes_per_s"),
        ({"speed": MachineSpeed(matmul_gflops=2e9)}, "spec.speed.matmul_gflops"),
        ({"speed": MachineSpeed(measured_time=Timestamp(seconds=-1))}, "spec.speed.measured_time.seconds"),
        ({"speed": MachineSpeed(measured_time=Timestamp(seconds=2**40))}, "spec.speed.measured_time.seconds"),
        ({"address": "x" * 260 + ":1234"}, "spec.address"),
        ({"address": "host\x1b[2J:1"}, "spec.address"),
        (
            {"accelerators": [Accelerator(kind="cpu", model="\u202exe", count=1)]},
            "spec.accelerators[0].model",
        ),
        ({"accelerators": [Accelerator(kind="cpu", model="x" * 128, count=1)] * 64}, "spec"),
        ({"labels": {"room": "\x1b[8m"}}, "spec.labels[room]"),
        ({"labels": {"room": "x" * 64}}, "spec.labels[room]"),
        ({"labels": {str(n): "" for n in range(33)}}, "spec.labels"),
    ],
)
def test_a_field_outside_its_limits_is_refused_by_name(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        check_application(request(spec))
    assert refusal.value.metadata["field"] == field


@pytest.mark.parametrize("request_id", ["", "1", "not-a-uuid"])
def test_a_request_id_is_a_uuid(request_id: str) -> None:
    with pytest.raises(InvalidArgumentError, match="request_id"):
        check_application(request({}, request_id=request_id))


@pytest.mark.parametrize("length", [0, 15, 129])
def test_a_bad_key_is_refused_without_being_repeated(length: int) -> None:
    with pytest.raises(InvalidArgumentError, match="node_key") as refusal:
        check_application(request({}, node_key="s" * length))
    assert "s" * 15 not in refusal.value.message


def test_the_key_is_kept_as_its_hash_only() -> None:
    application = check_application(request({"slots": 0}))
    assert application.key_sha256 == hashlib.sha256(b"k" * 16).hexdigest()
    assert "k" * 16 not in repr(application)


def test_fields_of_another_version_are_not_kept() -> None:
    """They would be stored with the node, whatever their size."""
    unknown = b"\xfa\x01\x80\x80\x04" + b"x" * 65_536  # field 31, 65,536 bytes
    wire = request({}).spec.SerializeToString() + unknown
    application = check_application(
        RegisterRequest(spec=NodeSpec.FromString(wire), node_key="k" * 16, request_id=REQUEST_ID)
    )
    assert application.spec.ByteSize() < 100
