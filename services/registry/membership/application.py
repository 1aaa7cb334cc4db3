"""What a node may say of itself when it registers, each field with its limits; and why it is refused."""

import hashlib
import uuid
from dataclasses import dataclass

from peerloom.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
)
from peerloom.kit.checks import (
    check_address,
    check_labels,
    check_line,
    check_name,
    check_range,
    check_text,
    check_timestamp,
)
from peerloom.kit.clock import to_timestamp
from peerloom.kit.limits import MAX_ACCELERATORS, MAX_SLOTS, MAX_SPEED_GFLOPS, NODE_ID
from peerloom.kit.principal import Principal
from peerloom.services.registry.membership.node_records import NodeRecord
from peerloom.v1.common_pb2 import Accelerator, MachineSpeed
from peerloom.v1.registry_pb2 import MachineLoad, NodeSpec, RegisterRequest

MAX_SPEC_BYTES = 4096
_MAX_BYTES_PER_S = 1e15
_MAX_CORES = 1e6
_SPEEDS = {
    "matmul_gflops": MAX_SPEED_GFLOPS,
    "memory_bytes_per_s": _MAX_BYTES_PER_S,
    "disk_bytes_per_s": _MAX_BYTES_PER_S,
    "training_gflops": MAX_SPEED_GFLOPS,
    "heartbeat_s": 3600.0,
}


@dataclass(frozen=True)
class Application:
    """A registration whose fields are all within their limits; the key is kept as its SHA-256 only.

    `node_id` is who the caller's certificate says it is; empty where there are no certificates.
    """

    spec: NodeSpec
    key_sha256: str
    request_id: str
    node_id: str = ""


def check_application(request: RegisterRequest, caller: Principal | None = None) -> Application:
    """Raises InvalidArgumentError naming the first field that breaks its limit.

    Whose the node is, its certificate says, and nobody else.
    """
    _check_spec(request.spec)
    request.spec.owner = caller.owner if caller is not None else ""
    check_text("node_key", "*" * len(request.node_key), low=16, high=128)  # a secret isn't repeated
    try:
        request_id = str(uuid.UUID(request.request_id))
    except ValueError:
        raise InvalidArgumentError.of_field("request_id", request.request_id[:80], "a UUID") from None
    key_sha256 = hashlib.sha256(request.node_key.encode()).hexdigest()
    return Application(request.spec, key_sha256, request_id, caller.id if caller is not None else "")


def check_speed(at: str, speed: MachineSpeed) -> None:
    """Raises InvalidArgumentError naming the field, behind `at`, that no machine can have measured."""
    speed.DiscardUnknownFields()
    for field, limit in _SPEEDS.items():
        check_range(f"{at}.{field}", getattr(speed, field), 0, limit)
    check_timestamp(f"{at}.measured_time", speed.measured_time)


def check_load(at: str, load: MachineLoad) -> None:
    """Raises InvalidArgumentError naming the field, behind `at`, that no machine can be busy with."""
    load.DiscardUnknownFields()
    check_range(f"{at}.cpu_use", load.cpu_use, 0, 1)
    check_range(f"{at}.own_cpu_use", load.own_cpu_use, 0, 1)
    check_range(f"{at}.cores", load.cores, 0, _MAX_CORES)
    check_range(f"number of {at}.gpus", len(load.gpus), 0, MAX_ACCELERATORS)
    for number, gpu in enumerate(load.gpus):
        check_range(f"{at}.gpus[{number}].use", gpu.use, 0, 1)


def check_reached_at(at: str, address: str, via: str) -> None:
    """Raises InvalidArgumentError naming the field, behind `at`, that can't be where a node is reached."""
    check_text(f"{at}address", address, low=3, high=262)
    check_address(f"{at}address", address)
    if via:
        check_name(f"{at}via", via)


def _check_spec(spec: NodeSpec) -> None:
    spec.DiscardUnknownFields()  # they would be stored, whatever their size
    check_name("spec.name", spec.name)
    if NODE_ID.fullmatch(spec.name):
        limit = "a name that can't be taken for a node's id"
        raise InvalidArgumentError.of_field("spec.name", spec.name, limit)
    check_reached_at("spec.", spec.address, spec.via)
    check_range("spec.slots", spec.slots, 0, MAX_SLOTS)
    check_range("number of spec.accelerators", len(spec.accelerators), 0, MAX_ACCELERATORS)
    for number, accelerator in enumerate(spec.accelerators):
        _check_accelerator(f"spec.accelerators[{number}]", accelerator)
    check_speed("spec.speed", spec.speed)
    check_labels("spec.labels", spec.labels)
    # Each field is within its limit; all at their limits would be 50 kB a node.
    if spec.ByteSize() > MAX_SPEC_BYTES:
        raise InvalidArgumentError.of_field(
            "spec", f"{spec.ByteSize():,} bytes", f"at most {MAX_SPEC_BYTES:,} bytes"
        )


def _check_accelerator(field: str, accelerator: Accelerator) -> None:
    check_line(f"{field}.kind", accelerator.kind, low=1, high=63)
    check_line(f"{field}.model", accelerator.model, high=128)
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


def another_certificate(record: NodeRecord, node_id: str) -> PermissionDeniedError:
    """The refusal of a node that comes back with the certificate of another one."""
    return PermissionDeniedError(
        f"The node {record.name} is {record.node_id}, but your certificate is that of {node_id}. Join with a "
        f"token made for it: peerloom token create --role node --name {record.node_id}; or, if it was known "
        f"before there were certificates, forget it: peerloom nodes remove {record.name}.",
        reason="ANOTHER_CERTIFICATE",
        metadata={"name": record.name, "node_id": record.node_id},
    )


def node_limit_reached(limit: int) -> ResourceExhaustedError:
    """The refusal of a newcomer when the registry is full."""
    return ResourceExhaustedError(
        f"The registry knows {limit:,} nodes, its limit, and none of them is gone; raise node_limit to admit "
        "more.",
        reason="NODE_LIMIT",
        metadata={"limit": str(limit)},
    )


def changes_too_often(record: NodeRecord) -> ResourceExhaustedError:
    """The refusal of one more change of a node."""
    return ResourceExhaustedError(
        f"{record.name} was changed too often just now; try again in a few seconds.",
        reason="CHANGES_TOO_OFTEN",
        metadata={"name": record.name},
    )


def still_there(record: NodeRecord) -> FailedPreconditionError:
    """The refusal to forget a node whose session is open."""
    return FailedPreconditionError(
        f"{record.name} has an open session. Stop its agent first; or force it: its session is closed then, "
        "and if its agent still runs, it comes back as a new node.",
        reason="NODE_IS_THERE",
        metadata={"name": record.name},
    )


def was_forgotten(record: NodeRecord) -> NotFoundError:
    """The refusal to change a node that was forgotten meanwhile."""
    return NotFoundError.of_name("node", record.name, ())
