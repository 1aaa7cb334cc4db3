"""Seconds, bytes, numbers and counts as people read them."""


def shown_s(seconds: float) -> str:
    """For people: e.g. "1.05 s", "12.3 ms"."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def shown_bytes(count: float) -> str:
    """For people: e.g. "1.3 GB"; powers of 1000."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def shown_number(value: float) -> str:
    """For people: e.g. "7.17", "12,200"; three digits that count."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 1000 else f"{value:.3g}"


def plural(count: int, noun: str) -> str:
    """E.g. "1 node", "2 nodes"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
