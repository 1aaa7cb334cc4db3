"""Checks of what callers send; each names the field and its limit."""

import re
from collections.abc import Iterable, Mapping

from google.protobuf.timestamp_pb2 import Timestamp

from peerloom.errors import InvalidArgumentError

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):([0-9]{1,5})")
_ADDRESS_CHARACTERS = 262
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


def check_visible(field: str, value: str) -> None:
    """Raises InvalidArgumentError for text with characters that aren't seen, or change what is seen."""
    if not value.isprintable():
        raise InvalidArgumentError.of_field(field, value[:80], "text of characters that can be seen")


def check_timestamp(field: str, stamp: Timestamp) -> None:
    """Raises InvalidArgumentError unless the time lies in the years 1970 to 9999."""
    check_range(f"{field}.seconds", stamp.seconds, 0, _LAST_TIME_S)
    check_range(f"{field}.nanos", stamp.nanos, 0, 999_999_999)


def check_name(field: str, value: str) -> None:
    """Raises InvalidArgumentError unless the text is a node's or job's name."""
    if not _NAME.fullmatch(value):
        limit = "1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
        raise InvalidArgumentError.of_field(field, value[:80], limit)


def check_digest(field: str, value: str) -> None:
    """Raises InvalidArgumentError unless the text is a SHA-256."""
    if not _DIGEST.fullmatch(value):
        raise InvalidArgumentError.of_field(field, value[:80], "64 lower-case hexadecimal digits")


def check_address(field: str, value: str) -> None:
    """Raises InvalidArgumentError unless the text is host:port with a port from 1 to 65535."""
    match = _ADDRESS.fullmatch(value[: _ADDRESS_CHARACTERS + 1])
    if not match or len(value) > _ADDRESS_CHARACTERS or not 1 <= int(match[2]) <= 65535:
        raise InvalidArgumentError.of_field(field, value[:80], "host:port with a port from 1 to 65535")


def check_labels(field: str, labels: Mapping[str, str]) -> None:
    """Raises InvalidArgumentError for more than 32 labels, or one of over 63 or unseen characters."""
    if len(labels) > 32:
        raise InvalidArgumentError.of_field(field, f"{len(labels)} entries", "at most 32 entries")
    for key, value in labels.items():
        check_text(f"{field} key", key, low=1, high=63)
        check_visible(f"{field} key", key)
        check_text(f"{field}[{key}]", value, high=63)
        check_visible(f"{field}[{key}]", value)


def check_choice(field: str, value: int, allowed: Iterable[int], limit: str) -> None:
    """Raises InvalidArgumentError unless the enum's number is among the allowed ones."""
    if value not in set(allowed):
        raise InvalidArgumentError.of_field(field, value, limit)
