"""What a node may say of itself when it registers, each field with its limits; and why it is refused."""

import hashlib
import math
import uuid
from dataclasses import dataclass

from peerloom.errors import AlreadyExistsError, InvalidArgumentError, ResourceExhaustedError
from peerloom.kit.checks import check_address, check_labels, check_name, check_range, check_text
from peerloom.kit.clock import to_timestamp
from peerloom.kit.limits import MAX_ACCELERATORS, MAX_SLOTS, NODE_ID
from peerloom.services.registry.membership.node_records import NodeRecord
from peerloom.v1.common_pb2 import Accelerator, MachineSpeed
from peerloom.v1.registry_pb2 import NodeSpec, RegisterRequest

_SPEEDS = ("matmul_gflops", "memory_bytes_per_s", "disk_bytes_per_s", "training_gflops", "heartbeat_s")


@dataclass(frozen=True)
class Application:
    """A registration whose fields are all within their limits; the key is kept as its SHA-256 only."""

    spec: NodeSpec
    key_sha256: str
    request_id: str


def check_application(request: RegisterRequest) -> Application:
    """Raises InvalidArgumentError naming the first field that breaks its limit."""
    _check_spec(request.spec)
    check_text("node_key", "*" * len(request.node_key), low=16, high=128)  # a secret isn't repeated
    try:
        request_id = str(uuid.UUID(request.request_id))
    except ValueError:
        raise InvalidArgumentError.of_field("request_id", request.request_id[:80], "a UUID") from None
    return Application(request.spec, hashlib.sha256(request.node_key.encode()).hexdigest(), request_id)


def check_speed(at: str, speed: MachineSpeed) -> None:
    """Raises InvalidArgumentError naming the field, behind `at`, that is no finite number from 0 on."""
    for field in _SPEEDS:
        value = getattr(speed, field)
        check_range(f"{at}.{field}", value, 0, math.inf)
        if math.isinf(value):
            raise InvalidArgumentError.of_field(f"{at}.{field}", value, "finite")


def _check_spec(spec: NodeSpec) -> None:
    check_name("spec.name", spec.name)
    if NODE_ID.fullmatch(spec.name):
        limit = "a name that can't be taken for a node's id"
        raise InvalidArgumentError.of_field("spec.name", spec.name, limit)
    check_text("spec.address", spec.address, low=3, high=262)
    check_address("spec.address", spec.address)
    check_range("spec.slots", spec.slots, 0, MAX_SLOTS)
    check_range("number of spec.accelerators", len(spec.accelerators), 0, MAX_ACCELERATORS)
    for number, accelerator in enumerate(spec.accelerators):
        _check_accelerator(f"spec.accelerators[{number}]", accelerator)
    check_speed("spec.speed", spec.speed)
    check_labels("spec.labels", spec.labels)


def _check_accelerator(field: str, accelerator: Accelerator) -> None:
    check_text(f"{field}.kind", accelerator.kind, low=1, high=63)
    check_text(f"{field}.model", accelerator.model, high=128)
    check_range(f"{field}.count", accelerator.count, 1, MAX_SLOTS)


def name_taken(holder: NodeRecord, reason: str) -> AlreadyExistsError:
    """The refusal of a name that another node holds: which one, and since when."""
    since = to_timestamp(holder.registered_s).ToJsonString()
    return AlreadyExistsError(
        f"The name {holder.name!r} belongs since {since} to {holder.node_id} at {holder.spec.address}. "
        f"{reason} Choose another name; or, if this is the same machine, start the agent on its former "
        "state folder, where its key lies.",
        reason="NODE_NAME_TAKEN",
        metadata={"name": holder.name, "node_id": holder.node_id, "since": since},
    )


def node_limit_reached(limit: int) -> ResourceExhaustedError:
    """The refusal of a newcomer when the registry is full."""
    return ResourceExhaustedError(
        f"The registry knows {limit:,} nodes, its limit; raise node_limit to admit more.",
        reason="NODE_LIMIT",
        metadata={"limit": str(limit)},
    )
