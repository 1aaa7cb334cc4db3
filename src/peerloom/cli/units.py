"""Numbers and times as people read them."""

from datetime import UTC, datetime


def human_duration(seconds: float) -> str:
    """E.g. "0.4 s", "12 s", "3 min 05 s", "2 h 10 min", "4 d 3 h"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 60:
        return f"{minutes} min {whole % 60:02d} s"
    if hours < 24:
        return f"{hours} h {minutes % 60:02d} min"
    return f"{days} d {hours % 24} h"


def human_share(part: float | None) -> str:
    """A part of the whole, 0 to 1, e.g. "34%"; "-" for what isn't known."""
    return "-" if part is None else f"{part:.0%}"


def human_age(time: datetime | None, now: datetime | None = None) -> str:
    """How long ago, e.g. "12 s ago"; "-" for a time that isn't set."""
    if time is None:
        return "-"
    past = (now or datetime.now(UTC)) - time
    return f"{human_duration(max(0.0, past.total_seconds()))} ago"


def metric_of(name: str | None, value: float | None) -> str:
    """A test metric as "accuracy 0.9722"; "-" before there is one."""
    return f"{name or 'metric'} {value:.4f}" if value is not None else "-"
