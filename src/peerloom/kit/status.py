"""Our exceptions as gRPC statuses with a google.rpc.ErrorInfo, and back."""

from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from peerloom.errors import (
    BY_STATUS,
    DOMAIN,
    DeadlineError,
    InternalError,
    PeerloomError,
    UnavailableError,
)
from peerloom.kit.printable import escaped

_DETAILS_KEY = "grpc-status-details-bin"
# gRPC bounds a call's headers to 8 KiB. The message travels twice there: as base64, and with every byte
# beyond ASCII as three.
_MESSAGE_LIMIT_BYTES = 1000
_METADATA_LIMIT_BYTES = 2000
_VALUE_LIMIT_BYTES = 200
UNREACHABLE = "UNREACHABLE"


def code_of(error: PeerloomError) -> grpc.StatusCode:
    """The gRPC status of an exception."""
    return grpc.StatusCode[error.status]


def message_of(error: PeerloomError) -> str:
    """The exception's message, as much of it as fits into a header."""
    return _cut(error.message, _MESSAGE_LIMIT_BYTES)


def details_of(error: PeerloomError) -> tuple[tuple[str, bytes], ...]:
    """Trailing metadata that carries the exception's reason and metadata as an ErrorInfo."""
    info = ErrorInfo(reason=error.reason, domain=DOMAIN)
    left_bytes = _METADATA_LIMIT_BYTES
    for key, value in error.metadata.items():
        shown = _cut(value, _VALUE_LIMIT_BYTES)
        left_bytes -= len(key.encode()) + len(shown.encode())
        if left_bytes < 0:
            break
        info.metadata[key] = shown
    status = Status(code=code_of(error).value[0], message=message_of(error))
    detail = any_pb2.Any()
    detail.Pack(info)
    status.details.append(detail)
    return ((_DETAILS_KEY, status.SerializeToString()),)


def error_from_rpc(error: grpc.RpcError, address: str, service: str) -> PeerloomError:
    """The exception that the service raised, or one that names who couldn't be reached."""
    code: grpc.StatusCode = error.code()
    info, details = _info(error), escaped(error.details() or "", "\t\n")
    cls = BY_STATUS.get(code.name, InternalError)
    if info is not None:
        return cls(details or code.name, reason=info.reason, metadata=dict(info.metadata))
    if code is grpc.StatusCode.UNAVAILABLE:
        return UnavailableError(
            f"The {service} at {address} can't be reached ({details}). Is it running?",
            reason=UNREACHABLE,
            metadata={"service": service, "address": address},
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineError(
            f"The {service} at {address} did not answer in time. Try again; its log tells what it does.",
            reason="NO_ANSWER_IN_TIME",
        )
    where = {"service": service, "address": address}
    return cls(f"{service} at {address}: {details}", metadata=where)


def behind_a_door(address: str, service: str) -> PeerloomError:
    """What a caller without an identity is told where certificates are asked for."""
    return UnavailableError(
        f"The {service} at {address} belongs to a system with a door and answers only who was let in. Log in "
        "with `peerloom login TOKEN`; start a node or a service with --join TOKEN. Whoever runs the registry "
        "makes tokens: `peerloom token create`.",
        reason="BEHIND_A_DOOR",
        metadata={"service": service, "address": address},
    )


def _cut(text: str, limit_bytes: int) -> str:
    return text.encode()[:limit_bytes].decode(errors="ignore")


def _info(error: grpc.RpcError) -> ErrorInfo | None:
    metadata: Any = error.trailing_metadata() or ()
    for key, value in metadata:
        if key == _DETAILS_KEY:
            for detail in Status.FromString(value).details:
                info = ErrorInfo()
                if detail.Unpack(info):
                    return info
    return None
