"""Rates, times and sizes as people write them: 50Mbps, 10ms, 2GB."""

import re

from peerloom.errors import ConfigurationError
from peerloom.kit.quantity_texts import shown_number

_RATES = {"bps": 1.0, "kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_SIZES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)")


def bits_per_s(text: str | float) -> float:
    """E.g. "50Mbps" as 5e7; 0 without a unit is 0. Raises ConfigurationError for anything else."""
    return _read(text, _RATES, "a rate such as 50Mbps")


def seconds(text: str | float) -> float:
    """E.g. "10ms" as 0.01; 0 without a unit is 0. Raises ConfigurationError for anything else."""
    return _read(text, _TIMES, "a time such as 10ms, 30s or 5min")


def size_bytes(text: str | float) -> int:
    """E.g. "2GB" as 2,000,000,000. Raises ConfigurationError for anything else."""
    return round(_read(text, _SIZES, "a size such as 2GB"))


def _read(text: str | float, units: dict[str, float], like: str) -> float:
    match = _NUMBER.fullmatch(str(text))
    if match and match[2] in units:
        return float(match[1]) * units[match[2]]
    if match and not match[2] and float(match[1]) == 0:
        return 0.0
    raise ConfigurationError(f"{text!r} must be {like}.")


def rate_text(rate: float) -> str:
    """E.g. 5e7 as "50Mbps": what ns-3 reads too, exact for whole bits."""
    for unit, scale in reversed(_RATES.items()):
        if rate >= scale and rate % scale == 0:
            return f"{rate / scale:.0f}{unit}"
    return f"{rate:.0f}bps"


def time_text(time_s: float) -> str:
    """E.g. 0.01 as "10ms", in whole nanoseconds: what ns-3 reads too."""
    nanoseconds = round(time_s * 1e9)
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if nanoseconds and nanoseconds % scale == 0:
            return f"{nanoseconds // scale}{unit}"
    return f"{nanoseconds}ns"


def shown_rate(rate: float) -> str:
    """For people: e.g. 5.21e8 as "521 Mbit/s"."""
    for unit, scale in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if rate >= scale:
            return f"{shown_number(rate / scale)} {unit}"
    return f"{rate:.0f} bit/s"
