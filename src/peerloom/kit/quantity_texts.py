"""Seconds, bytes, numbers and counts as people read them: what is measured with three digits that count."""


def shown_s(seconds: float) -> str:
    """E.g. "1.05 s", "12.3 ms", "1,230 s"."""
    return f"{shown_number(seconds)} s" if _rounded(seconds) >= 1 else f"{shown_number(seconds * 1e3)} ms"


def shown_bytes(count: float) -> str:
    """E.g. "1.3 GB"; powers of 1000."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if _rounded(count / size) >= 1:
            return f"{shown_number(count / size)} {unit}"
    return f"{count:.0f} B"


def shown_number(value: float, digits: int = 3) -> str:
    """E.g. "7.17", "12,200"; so many digits that count."""
    rounded = _rounded(value, digits)
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.{digits}g}"


def _rounded(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")


def plural(count: int, noun: str) -> str:
    """E.g. "1 node", "2 nodes"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def doing(count: int, noun: str, does: str) -> str:
    """E.g. "1 node goes on", "2 nodes go on"; `does` begins with a regular verb, as for many."""
    verb, space, rest = does.partition(" ")
    ending = "" if count != 1 else "es" if verb.endswith("o") else "s"
    return f"{plural(count, noun)} {verb}{ending}{space}{rest}"
