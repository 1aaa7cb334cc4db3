"""Pages of lists: the token is the key of the last item, so that pages stay right while the list changes."""

import base64
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import check_range

DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000
MAX_PAGE_BYTES = 2 * 2**20  # well below what a client of gRPC takes as one message, 4 MiB
T = TypeVar("T")


def page_size_of(requested: int) -> int:
    """The page size to use: 100 for 0. Raises InvalidArgumentError above 1000."""
    check_range("page_size", requested, 0, MAX_PAGE_SIZE)
    return requested or DEFAULT_PAGE_SIZE


def fill_page(items: Iterable[T], size: int, bytes_of: Callable[[T], int]) -> tuple[list[T], bool]:
    """At most `size` items, of MAX_PAGE_BYTES unless one alone has more; and whether others follow."""
    page: list[T] = []
    total = 0
    for item in items:
        total += bytes_of(item)
        if len(page) == size or (page and total > MAX_PAGE_BYTES):
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
    try:
        return json.loads(base64.urlsafe_b64decode(token.encode()))
    except ValueError:
        limit = "a next_page_token from an earlier answer"
        raise InvalidArgumentError.of_field("page_token", token[:80], limit) from None


def page_token_after(items: list[Any], size: int, key_of_last: Any) -> str:
    """The next page's token, or "" when fewer than `size` items came back."""
    return encode_token(key_of_last) if len(items) == size else ""
