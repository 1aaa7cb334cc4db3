"""Enums, times and absent numbers."""

from datetime import datetime
from typing import Any

from google.protobuf.message import Message

from peerloom.kit.clock import to_datetime


def enum_word(enum: Any, number: int, prefix: str) -> Any:
    """The lower-case word of an enum's number; "unknown" for one that is unset or newer than we are."""
    if number == 0 or number not in enum.values():
        return "unknown"
    return str(enum.Name(number)).removeprefix(prefix).lower()


def time_of(message: Message, field: str) -> datetime | None:
    """A Timestamp field as an aware datetime in UTC, None when unset."""
    return to_datetime(getattr(message, field)) if message.HasField(field) else None


def given(message: Message, field: str) -> Any:
    """A field with presence, None when unset."""
    return getattr(message, field) if message.HasField(field) else None
