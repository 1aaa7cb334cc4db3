"""Pages of lists: the token is the key of the last item, so that pages stay right while the list changes."""

import base64
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from google.protobuf.message import Message

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_range

DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000
PAGE_BYTES = 2 * 2**20  # half of what a client of gRPC takes as one message
_TOKEN_CHARACTERS = 4096
T = TypeVar("T")


def page_size_of(requested: int) -> int:
    """The page size to use: 100 for 0. Raises InvalidArgumentError above 1000."""
    check_range("page_size", requested, 0, MAX_PAGE_SIZE)
    return requested or DEFAULT_PAGE_SIZE


def fill_page(items: Iterable[T], size: int, bytes_of: Callable[[T], int]) -> tuple[list[T], bool]:
    """At most `size` items, of PAGE_BYTES unless one alone has more; and whether others follow."""
    page: list[T] = []
    total = 0
    for item in items:
        total += bytes_of(item)
        if len(page) == size or (page and total > PAGE_BYTES):
            return page, True
        page.append(item)
    return page, False


def encode_token(key: Any) -> str:
    """The last item's key (JSON-able) as an opaque token."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def decode_token(token: str) -> Any:
    """The key inside a token, None for an empty one. Raises InvalidArgumentError for a token not ours."""
    if not token:
        return None
    if len(token) > _TOKEN_CHARACTERS:
        raise foreign_token(token)
    try:
        return json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, RecursionError):
        raise foreign_token(token) from None


def number_key(token: str) -> int | None:
    """The number inside a token, 1 to 2^63 - 1, None for an empty one. Raises InvalidArgumentError."""
    key = decode_token(token)
    if key is None:
        return None
    if type(key) is int and 0 < key < 2**63:
        return key
    raise foreign_token(token)


def name_key(token: str) -> str:
    """The text inside a token, "" for an empty one. Raises InvalidArgumentError for a token not ours."""
    key = decode_token(token)
    if key is None:
        return ""
    if isinstance(key, str):
        return key
    raise foreign_token(token)


def foreign_token(token: str) -> InvalidArgumentError:
    """The refusal of a token that is not ours, or of another list."""
    limit = "a next_page_token from an earlier answer to the same call"
    return InvalidArgumentError.of_field("page_token", token[:80], limit)


def byte_size(message: Message) -> int:
    """What a message takes of a page."""
    return message.ByteSize()


def page_token_after(items: list[Any], size: int, key_of_last: Any) -> str:
    """The next page's token, or "" when fewer than `size` items came back."""
    return encode_token(key_of_last) if len(items) == size else ""
