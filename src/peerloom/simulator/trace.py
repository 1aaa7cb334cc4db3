"""Availability read from a file.

One session a line, columns separated by commas, no quotes: host,start_s,end_s,notice

    host     any name without a comma; each name is one host
    start_s  when the session began, in seconds from the start of the trace, 0 or more
    end_s    when it ended, more than start_s; `inf` if the trace ends before it
    notice   1: it ended with a goodbye, 0: without one (an interruption)

Empty lines and lines that begin with # are skipped. Sessions of one host may not overlap; the order of the
lines doesn't matter.
"""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path

from peerloom.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class TracedSession:
    """One online period, in seconds from the start of the trace."""

    start_s: float
    end_s: float
    notice: bool


def read_trace(path: Path) -> dict[str, list[TracedSession]]:
    """Each host's sessions in order of time, hosts in order of their names.

    Raises InvalidArgumentError with the line's number for what is malformed, and for an empty trace.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"the trace {path} can't be read: {error}") from error
    sessions: dict[str, list[tuple[TracedSession, int]]] = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            host, session = _session(path, number, line)
            sessions.setdefault(host, []).append((session, number))
    if not sessions:
        raise InvalidArgumentError(f"the trace {path} holds no session. A line is host,start_s,end_s,notice.")
    return {host: _in_order(path, host, sessions[host]) for host in sorted(sessions)}


def _session(path: Path, number: int, line: str) -> tuple[str, TracedSession]:
    parts = [part.strip() for part in line.split(",")]
    try:
        host, start, end, notice = parts
        session = TracedSession(float(start), float(end), {"0": False, "1": True}[notice])
    except (ValueError, KeyError):
        raise _malformed(
            path, number, f"{line[:80]!r} isn't host,start_s,end_s,notice with notice 0 or 1"
        ) from None
    if not host or not (0 <= session.start_s < session.end_s and math.isfinite(session.start_s)):
        raise _malformed(path, number, f"{line[:80]!r} must have a host, and 0 <= start_s < end_s")
    return host, session


def _in_order(path: Path, host: str, found: list[tuple[TracedSession, int]]) -> list[TracedSession]:
    found.sort(key=lambda one: one[0].start_s)
    for (before, first), (after, second) in itertools.pairwise(found):
        if after.start_s < before.end_s:
            raise _malformed(path, max(first, second), f"sessions of {host!r} overlap: {first} and {second}")
    return [session for session, _ in found]


def _malformed(path: Path, number: int, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"line {number} of the trace {path}: {what}.")
