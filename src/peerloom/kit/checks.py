"""Checks of what callers send; each names the field and its limit."""

import re
from collections.abc import Iterable, Mapping

from google.protobuf.timestamp_pb2 import Timestamp

from peerloom.errors import InvalidArgumentError
from peerloom.kit.limits import MAX_SLOTS
from peerloom.v1.selector_pb2 import Requirements

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ID_BEGINNING = re.compile(r"[a-z0-9-]{1,64}")
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
# A name, IPv4, or IPv6 in brackets. Without a letter of a path or scheme: gRPC takes "unix:80" for a file.
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_ADDRESS = re.compile(rf"(\[[0-9a-fA-F:]{{2,39}}\]|{_LABEL}(?:\.{_LABEL})*):([0-9]{{1,5}})")
_LONGEST_ADDRESS = 253 + len(":65535")
_SCHEMES = frozenset(
    {"dns", "google-c2p", "ipv4", "ipv6", "passthrough", "unix", "unix-abstract", "vsock", "xds"}
)
_LAST_TIME_S = 253_402_300_799  # the end of the year 9999, where a protobuf Timestamp ends


def check_range(field: str, value: float, low: float, high: float) -> None:
    """Raises InvalidArgumentError unless low <= value <= high; NaN is outside."""
    if not low <= value <= high:
        raise InvalidArgumentError.of_field(field, value, f"from {low:,} to {high:,}")


def check_text(field: str, value: str, *, low: int = 0, high: int) -> None:
    """Raises InvalidArgumentError unless the text has `low` to `high` characters."""
    if not low <= len(value) <= high:
        shown = value if len(value) <= 80 else value[:77] + "..."
        raise InvalidArgumentError.of_field(field, shown, f"{low} to {high} characters long")


def check_line(field: str, value: str, *, low: int = 0, high: int) -> None:
    """As `check_text`, and refuses what a terminal would obey: control characters, line ends, directions."""
    check_text(field, value, low=low, high=high)
    if not value.isprintable():
        raise InvalidArgumentError.of_field(field, value[:80], "one line of printable characters")


def check_timestamp(field: str, stamp: Timestamp) -> None:
    """Raises InvalidArgumentError unless the time lies in the years 1970 to 9999."""
    check_range(f"{field}.seconds", stamp.seconds, 0, _LAST_TIME_S)
    check_range(f"{field}.nanos", stamp.nanos, 0, 999_999_999)


def check_name(field: str, value: str) -> None:
    """Raises InvalidArgumentError unless the text is a node's or job's name."""
    if not _NAME.fullmatch(value):
        limit = "1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
        raise InvalidArgumentError.of_field(field, value[:80], limit)


def check_id_beginning(field: str, value: str) -> None:
    """Raises InvalidArgumentError unless the text can be an id, or the beginning of one."""
    if not _ID_BEGINNING.fullmatch(value):
        raise InvalidArgumentError.of_field(field, value[:80], "1 to 64 of a-z, 0-9 and '-'")


def check_request_id(field: str, value: str) -> None:
    """Raises InvalidArgumentError unless the text names an attempt, e.g. a UUID."""
    if not _REQUEST_ID.fullmatch(value):
        raise InvalidArgumentError.of_field(field, value[:80], "1 to 128 visible ASCII characters")


def check_digest(field: str, value: str) -> None:
    """Raises InvalidArgumentError unless the text is a SHA-256."""
    if not _DIGEST.fullmatch(value):
        raise InvalidArgumentError.of_field(field, value[:80], "64 lower-case hexadecimal digits")


def check_secret(field: str, value: str) -> None:
    """Raises InvalidArgumentError, which doesn't show the value, unless it is a secret of `new_secret`."""
    if not _DIGEST.fullmatch(value):
        limit = "64 lower-case hexadecimal digits"
        raise InvalidArgumentError.of_field(field, f"{len(value)} characters", limit)


def check_address(field: str, value: str) -> None:
    """Raises InvalidArgumentError unless the text is host:port with a port from 1 to 65535.

    Whatever is dialled was checked by this: paths, control characters and gRPC's schemes are no hosts.
    """
    match = _ADDRESS.fullmatch(value) if len(value) <= _LONGEST_ADDRESS else None
    if not match or not 1 <= int(match[2]) <= 65535 or match[1].lower() in _SCHEMES:
        raise InvalidArgumentError.of_field(field, value[:80], "host:port with a port from 1 to 65535")


def check_labels(field: str, labels: Mapping[str, str]) -> None:
    """Raises InvalidArgumentError for more than 32 labels, or one of over 63 or unseen characters."""
    if len(labels) > 32:
        raise InvalidArgumentError.of_field(field, f"{len(labels)} entries", "at most 32 entries")
    for key, value in labels.items():
        check_line(f"{field} key", key, low=1, high=63)
        check_line(f"{field}[{key}]", value, high=63)


def check_requirements(field: str, needs: Requirements) -> None:
    """Raises InvalidArgumentError for requirements that the selector doesn't take."""
    check_range(f"{field}.min_slots", needs.min_slots, 0, MAX_SLOTS)
    check_text(f"{field}.accelerator_kind", needs.accelerator_kind, high=63)
    check_labels(f"{field}.labels", needs.labels)


def check_choice(field: str, value: int, allowed: Iterable[int], limit: str) -> None:
    """Raises InvalidArgumentError unless the enum's number is among the allowed ones."""
    if value not in set(allowed):
        raise InvalidArgumentError.of_field(field, value, limit)
