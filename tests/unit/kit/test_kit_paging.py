"""Pages: whoever follows the tokens sees each item once, in order."""

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.errors import InvalidArgumentError
from peerloom.kit.paging import (
    PAGE_BYTES,
    byte_size,
    decode_token,
    encode_token,
    fill_page,
    name_key,
    number_key,
    page_size_of,
    page_token_after,
)
from peerloom.v1.registry_pb2 import Session

# As large as the keys of lists are: a few names and numbers, well within the length of a token.
KEYS = st.recursive(
    st.text(max_size=64) | st.integers(-(2**63), 2**63) | st.none() | st.booleans(),
    lambda keys: st.lists(keys, max_size=4),
    max_leaves=3,
)


@given(KEYS)
def test_a_token_gives_its_key_back(key: object) -> None:
    assert decode_token(encode_token(key)) == key


@given(KEYS)
def test_a_token_can_be_pasted_anywhere(key: object) -> None:
    assert set(encode_token(key)) <= set(string.ascii_letters + string.digits + "-_=")


@given(st.sets(st.text(), max_size=40), st.integers(1, 12))
def test_following_the_tokens_sees_each_item_once(names: set[str], size: int) -> None:
    ordered, seen, token = sorted(names), list[str](), ""
    for _ in range(len(ordered) + 2):
        after = decode_token(token)
        page = [name for name in ordered if after is None or name > after][:size]
        seen += page
        token = page_token_after(page, size, page[-1] if page else None)
        if not token:
            break
    assert seen == ordered


def test_a_page_is_full_by_count_or_by_bytes_and_never_empty() -> None:
    half = PAGE_BYTES // 2
    assert fill_page("abc", 2, lambda _: 1) == (["a", "b"], True)
    assert fill_page("ab", 2, lambda _: 1) == (["a", "b"], False)
    assert fill_page("abc", 9, lambda _: half) == (["a", "b"], True)
    assert fill_page("ab", 9, lambda _: PAGE_BYTES + 1) == (["a"], True)
    assert fill_page("", 9, lambda _: 1) == ([], False)


def test_the_empty_token_is_the_first_page() -> None:
    assert decode_token("") is None


@pytest.mark.parametrize("token", ["!", "abc", "é", "bm9wZQ==", "x" * 5000])
def test_a_token_that_is_not_ours_is_refused(token: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        decode_token(token)
    assert raised.value.metadata["field"] == "page_token"
    assert len(raised.value.message) < 250


def test_page_sizes() -> None:
    assert [page_size_of(0), page_size_of(1), page_size_of(1000)] == [100, 1, 1000]
    with pytest.raises(InvalidArgumentError, match="1,000"):
        page_size_of(1001)


def test_a_forged_token_is_refused_however_deep_it_is() -> None:
    deep = base64.urlsafe_b64encode(b"[" * 3000).decode()
    with pytest.raises(InvalidArgumentError, match="page_token"):
        decode_token(deep)
    with pytest.raises(InvalidArgumentError, match="page_token"):
        decode_token("x" * 10_000_000)


@pytest.mark.parametrize("key", [0, -1, 2**63, 2**70, -(2**70), 1.0, True, "1", [1], {"a": 1}])
def test_a_number_is_one_that_a_list_can_have(key: object) -> None:
    with pytest.raises(InvalidArgumentError, match="page_token"):
        number_key(encode_token(key))


@pytest.mark.parametrize("key", [1, True, ["a"], {"a": 1}, 1.5])
def test_a_name_is_text(key: object) -> None:
    with pytest.raises(InvalidArgumentError, match="page_token"):
        name_key(encode_token(key))


def test_keys_come_back_and_none_is_the_first_page() -> None:
    assert (number_key(encode_token(7)), number_key("")) == (7, None)
    assert (name_key(encode_token("ada")), name_key("")) == ("ada", "")


def test_a_page_is_bounded_in_bytes_and_never_empty() -> None:
    large = Session(end_reason="x" * (PAGE_BYTES // 2))
    larger = Session(end_reason="x" * (2 * PAGE_BYTES))
    framed = fill_page([large, large, large], 9, byte_size)
    assert framed == ([large], True), "with its frame one is over half of the page"
    assert fill_page([larger, large], 9, byte_size) == ([larger], True)
    assert fill_page([Session()] * 1000, 1000, byte_size) == ([Session()] * 1000, False)
    assert fill_page([], 9, byte_size) == ([], False)
