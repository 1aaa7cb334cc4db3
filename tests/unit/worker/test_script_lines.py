"""What a script prints becomes lines, of bounded length and at a bounded pace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloom.kit.allowance import Rate
from peerloom.kit.script_output import ScriptLine, marked, script_line
from peerloom.worker.script.printed_lines import LINE_BYTES, LineSplitter, Pacer


def split(*pieces: bytes) -> list[bytes]:
    """All lines of a stream that came in these pieces."""
    splitter = LineSplitter()
    return [line for piece in pieces for line in splitter.feed(piece)] + splitter.end()


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\ntw", b"o\n"], [b"one", b"two"]),
        ([b"no end"], [b"no end"]),
        ([b"a\r", b"\nb"], [b"a", b"b"]),
        ([b" 10%\r 20%\r", b" 30%"], [b" 10%", b" 20%", b" 30%"]),
        ([b"\n\n"], [b"", b""]),
        ([b"bar\r"], [b"bar"]),
        ([], []),
    ],
)
def test_lines_end_at_line_feeds_and_carriage_returns(pieces: list[bytes], lines: list[bytes]) -> None:
    assert split(*pieces) == lines


@given(st.lists(st.binary(max_size=3 * LINE_BYTES), max_size=4))
def test_nothing_is_lost_and_no_line_is_long(pieces: list[bytes]) -> None:
    lines = split(*pieces)
    assert all(len(line) <= LINE_BYTES for line in lines)
    text = b"".join(pieces).replace(b"\r", b"").replace(b"\n", b"")
    assert b"".join(lines) == text


def test_a_line_without_an_end_is_told_before_it_fills_the_memory() -> None:
    assert [len(line) for line in LineSplitter().feed(b"x" * (LINE_BYTES + 1))] == [LINE_BYTES, 1]


def test_who_prints_faster_than_allowed_waits() -> None:
    pacer = Pacer(Rate(most=100, per_s=10))
    assert pacer.pause_s(100, 0.0) == 0.0
    assert pacer.pause_s(50, 0.0) == 5.0
    assert pacer.pause_s(10, 5.0) == 1.0
    assert pacer.pause_s(10, 1000.0) == 0.0


def test_a_marked_line_is_found_again_and_others_are_not() -> None:
    assert marked(3, "err", b"[0:out] forged") == b"[3:err] [0:out] forged\n"
    assert script_line("[3:err] [0:out] forged") == ScriptLine(3, "err", "[0:out] forged")
    assert script_line("[12:out] ") == ScriptLine(12, "out", "")
    for line in ("generation_joined rank=0", "[x:out] a", "[1:all] a", "[1:out]"):
        assert script_line(line) is None
