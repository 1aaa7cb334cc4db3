"""How a script's output stands among a worker's lines: each behind its rank and the stream it came from."""

import re
from typing import Literal, NamedTuple, cast

Stream = Literal["out", "err"]
_LINE = re.compile(r"\[([0-9]{1,8}):(out|err)\] (.*)", re.DOTALL)


class ScriptLine(NamedTuple):
    """One line that a process of a script printed, without its end."""

    rank: int
    stream: Stream
    text: str


def marked(rank: int, stream: Stream, text: bytes) -> bytes:
    """The line as it stands in the worker's log, with its end."""
    return b"[%d:%s] %s\n" % (rank, stream.encode(), text)


def script_line(line: str) -> ScriptLine | None:
    """What `marked` made; None for a line of the worker's own."""
    found = _LINE.fullmatch(line)
    return ScriptLine(int(found[1]), cast(Stream, found[2]), found[3]) if found else None
