"""Enums as the words that users see, and back; times, and numbers that may be absent."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from google.protobuf.message import Message

from peerloom.errors import InvalidArgumentError, nearest
from peerloom.kit.clock import to_datetime


def words_of(enum: Any) -> dict[str, int]:
    """A schema's enum as the lower-case words of its names, without their prefix and the unset one."""
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.DESCRIPTOR.name).upper() + "_"
    return {name.removeprefix(prefix).lower(): number for name, number in enum.items() if number}


def word_of(enum: Any, number: int) -> Any:
    """The word of an enum's number; "unknown" for one that is unset or newer than we are."""
    return next((word for word, known in words_of(enum).items() if known == number), "unknown")


def number_of(field: str, enum: Any, word: str, extra: Mapping[str, int] | None = None) -> Any:
    """The number of an enum's word, or of one of the `extra` words.

    Raises InvalidArgumentError naming `field`, with the words that there are and the nearest one.
    """
    known = words_of(enum) | dict(extra or {})
    if word not in known:
        near = nearest(word, known)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise InvalidArgumentError.of_field(field, word, f"one of {', '.join(known)}{hint}")
    return known[word]


def time_of(message: Message, field: str) -> datetime | None:
    """A Timestamp field as an aware datetime in UTC, None when unset."""
    return to_datetime(getattr(message, field)) if message.HasField(field) else None


def given(message: Message, field: str) -> Any:
    """A field with presence, None when unset."""
    return getattr(message, field) if message.HasField(field) else None
