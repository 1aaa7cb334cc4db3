"""What can go wrong, as exceptions.

    PeerloomError
    ├── InvalidArgumentError      a field is outside its limits
    │   └── ConfigurationError    a setting is unknown or wrong; found before anything starts
    ├── NotFoundError             a node, job, policy, task or artifact that isn't there
    ├── AlreadyExistsError        a name that is taken
    ├── FailedPreconditionError   right request, wrong time: the state forbids it
    ├── ResourceExhaustedError    a limit was reached: disk, memory, message size
    ├── DataLossError             bytes that aren't what they should be
    ├── UnavailableError          somebody can't be reached now; trying again may help
    ├── DeadlineError             it took longer than the caller wanted to wait
    ├── CancelledError            the caller, or a user, ended it
    ├── PermissionDeniedError     the caller may not do this
    └── InternalError             our own bug

A service raises these and never says "gRPC"; the same class comes out at the caller. Each class names
its gRPC status; `reason` names the case for programs, the message tells people what was wrong, where,
and what to do next.
"""

import difflib
import heapq
import re
from collections.abc import Iterable, Mapping
from itertools import islice

DOMAIN = "peerloom"
# A question after a name costs the service that answers it so many names at most.
_NAME_CHARACTERS = 128
_SCANNED = 5000
_COMPARED = 100
_DIGEST = re.compile(r"[0-9a-f]{16,}")
_NO_WORD = re.compile(r"[^A-Z0-9]+")


class PeerloomError(Exception):
    """Anything that Peerloom raises on purpose."""

    status = "UNKNOWN"
    default_reason = "UNKNOWN"

    def __init__(
        self, message: str, *, reason: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.metadata = dict(metadata or {})


class InvalidArgumentError(PeerloomError):
    """A field is outside its limits."""

    status = "INVALID_ARGUMENT"
    default_reason = "INVALID_ARGUMENT"

    @classmethod
    def of_field(cls, field: str, value: object, limit: str) -> "InvalidArgumentError":
        """Names the `field`, its `value` and the `limit` it broke."""
        return cls(
            f"{field} is {value!r}, but must be {limit}.",
            reason="FIELD_OUT_OF_LIMITS",
            metadata={"field": field, "limit": limit},
        )


class ConfigurationError(InvalidArgumentError):
    """A setting is unknown or wrong; found before anything starts."""

    default_reason = "CONFIGURATION"


class NotFoundError(PeerloomError):
    """A thing that isn't there."""

    status = "NOT_FOUND"
    default_reason = "NOT_FOUND"

    @classmethod
    def of_name(cls, kind: str, name: str, known: Iterable[str]) -> "NotFoundError":
        """Names the `kind` of thing, the `name` asked for and the nearest of the `known` ones."""
        near = nearest(name, known)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return cls(
            f"There is no {kind} {name!r}.{hint}",
            reason=f"{_NO_WORD.sub('_', kind.upper())}_NOT_FOUND",
            metadata={"kind": kind, "name": name, "nearest": ",".join(near)},
        )


class AlreadyExistsError(PeerloomError):
    """A name that is taken."""

    status = "ALREADY_EXISTS"
    default_reason = "ALREADY_EXISTS"


class FailedPreconditionError(PeerloomError):
    """Right request, wrong time: the state forbids it."""

    status = "FAILED_PRECONDITION"
    default_reason = "FAILED_PRECONDITION"


class ResourceExhaustedError(PeerloomError):
    """A limit was reached: disk, memory, message size."""

    status = "RESOURCE_EXHAUSTED"
    default_reason = "RESOURCE_EXHAUSTED"


class DataLossError(PeerloomError):
    """Bytes that aren't what they should be."""

    status = "DATA_LOSS"
    default_reason = "DATA_LOSS"


class UnavailableError(PeerloomError):
    """Somebody can't be reached now; trying again may help."""

    status = "UNAVAILABLE"
    default_reason = "UNAVAILABLE"


class DeadlineError(PeerloomError):
    """It took longer than the caller wanted to wait."""

    status = "DEADLINE_EXCEEDED"
    default_reason = "DEADLINE_EXCEEDED"


class CancelledError(PeerloomError):
    """The caller, or a user, ended it."""

    status = "CANCELLED"
    default_reason = "CANCELLED"


class PermissionDeniedError(PeerloomError):
    """The caller may not do this."""

    status = "PERMISSION_DENIED"
    default_reason = "PERMISSION_DENIED"


class InternalError(PeerloomError):
    """Our own bug."""

    status = "INTERNAL"
    default_reason = "INTERNAL"


BY_STATUS: dict[str, type[PeerloomError]] = {
    error.status: error
    for error in (
        InvalidArgumentError,
        NotFoundError,
        AlreadyExistsError,
        FailedPreconditionError,
        ResourceExhaustedError,
        DataLossError,
        UnavailableError,
        DeadlineError,
        CancelledError,
        PermissionDeniedError,
        InternalError,
    )
}


def nearest(name: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """The `known` names most like `name`, best first, at most `limit`.

    Comparing is slow, so only a hundred are compared; none with a digest, which nobody mistypes, and which
    would be told of others by guessing.
    """
    if len(name) > _NAME_CHARACTERS or _DIGEST.fullmatch(name):
        return []
    return difflib.get_close_matches(name, _plausible(name, known), n=limit, cutoff=0.5)


def _plausible(name: str, known: Iterable[str]) -> list[str]:
    """Names that may be like `name` by their length; those with its first two characters come first."""
    scanned = islice(known, _SCANNED)
    fitting = [one for one in scanned if len(name) <= 3 * len(one) and len(one) <= 3 * len(name)]
    return heapq.nsmallest(_COMPARED, fitting, key=lambda one: (one[:1] != name[:1]) + (one[:2] != name[:2]))
