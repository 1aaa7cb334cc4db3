"""Checks name the field and its limit, and let everything inside the limit pass."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.errors import InvalidArgumentError
from peerloom.kit.checks import (
    check_address,
    check_choice,
    check_digest,
    check_labels,
    check_line,
    check_name,
    check_range,
    check_text,
)

BAD: list[tuple[Callable[[], None], str, str]] = [
    (lambda: check_range("epochs", 0, 1, 1_000_000), "epochs", "from 1 to 1,000,000"),
    (lambda: check_range("delay_s", math.nan, 0, 1), "delay_s", "from 0 to 1"),
    (lambda: check_range("delay_s", math.inf, 0, 1), "delay_s", "from 0 to 1"),
    (lambda: check_text("detail", "x" * 513, high=512), "detail", "0 to 512 characters long"),
    (lambda: check_text("node_key", "short", low=16, high=128), "node_key", "16 to 128 characters long"),
    (lambda: check_name("spec.name", "Node_1"), "spec.name", "a-z"),
    (lambda: check_name("name", "-a"), "name", "beginning and ending with a letter or digit"),
    (lambda: check_name("name", "a-"), "name", "beginning and ending"),
    (lambda: check_name("name", ""), "name", "1 to 63"),
    (lambda: check_name("name", "a" * 64), "name", "1 to 63"),
    (lambda: check_name("name", "a\n"), "name", "1 to 63"),
    (lambda: check_digest("digest", "A" * 64), "digest", "64 lower-case hexadecimal digits"),
    (lambda: check_digest("digest", "a" * 63), "digest", "64"),
    (lambda: check_address("address", "localhost"), "address", "host:port"),
    (lambda: check_address("address", "localhost:0"), "address", "1 to 65535"),
    (lambda: check_address("address", "localhost:65536"), "address", "1 to 65535"),
    (lambda: check_address("address", "a b:1"), "address", "host:port"),
    (lambda: check_address("address", "::1:80"), "address", "host:port"),
    (lambda: check_address("address", "unix:80"), "address", "host:port"),
    (lambda: check_address("address", "DNS:443"), "address", "host:port"),
    (lambda: check_address("address", "unix:///run/docker.sock:1"), "address", "host:port"),
    (lambda: check_address("address", "a/../b:1"), "address", "host:port"),
    (lambda: check_address("address", "a\x1b[2J:1"), "address", "host:port"),
    (lambda: check_address("address", "a\x00b:1"), "address", "host:port"),
    (lambda: check_address("address", f"{'a.' * 130}a:1"), "address", "host:port"),
    (lambda: check_line("name", "two\nlines", high=9), "name", "printable"),
    (lambda: check_line("name", "\x1b]0;x\x07", high=9), "name", "printable"),
    (lambda: check_line("name", "\u202egpj.exe", high=9), "name", "printable"),
    (lambda: check_labels("labels", {str(n): "" for n in range(33)}), "labels", "at most 32"),
    (lambda: check_labels("labels", {"": "x"}), "labels key", "1 to 63"),
    (lambda: check_labels("labels", {"site": "x" * 64}), "labels[site]", "0 to 63"),
    (lambda: check_choice("kind", 9, [1, 2], "SELECTOR or TRAINER"), "kind", "SELECTOR or TRAINER"),
]


@pytest.mark.parametrize(("check", "field", "limit"), BAD)
def test_what_breaks_a_limit_names_field_and_limit(check: Callable[[], None], field: str, limit: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        check()
    assert raised.value.metadata["field"] == field
    assert limit in raised.value.metadata["limit"]
    assert field in raised.value.message
    assert len(raised.value.message) < 300


def test_what_is_inside_the_limits_passes() -> None:
    check_range("x", 1, 1, 1)
    check_text("x", "", high=0)
    check_digest("x", "0123456789abcdef" * 4)
    check_labels("x", {str(n): "y" * 63 for n in range(32)})
    check_choice("x", 1, [1, 2], "1 or 2")
    for address in ("127.0.0.1:1", "[::1]:65535", "node-1.lab.example:7070"):
        check_address("x", address)


@given(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True))
def test_every_name_of_the_documented_form_passes(name: str) -> None:
    check_name("name", name)


@given(st.floats(), st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_range_agrees_with_plain_comparison(value: float, low: float, high: float) -> None:
    inside = low <= value and value <= high
    try:
        check_range("x", value, low, high)
    except InvalidArgumentError:
        assert not inside
    else:
        assert inside
