"""Local rounds: how many batches a rank trains on by itself, and what becomes of the ranks' changes.

Local SGD is that of Stich (ICLR 2019), whose parameters are averaged; DiLoCo that of Douillard et al.
(arXiv 2311.08105), where an outer optimiser with Nesterov momentum takes the mean change for a gradient. Pure
functions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from peerloom.errors import InvalidArgumentError, nearest

AVERAGE, NESTEROV = "average", "nesterov"
PERIOD_CHOICES = {"H": "each rank makes H steps by itself, then the ranks' changes are exchanged"}
OUTER_CHOICES = {
    AVERAGE: "the parameters become the ranks' mean, weighted by samples",
    f"{NESTEROV}:RATE:MOMENTUM": "an outer SGD with Nesterov momentum moves them by the ranks' mean change",
}
MAX_PERIOD, MAX_RATE = 10_000, 10.0


@dataclass(frozen=True)
class LocalRounds:
    """`period` batches a round (1 or more), and an outer SGD of `rate` with Nesterov `momentum` (0: none)."""

    period: int
    rate: float = 1.0
    momentum: float = 0.0

    @property
    def averages(self) -> bool:
        """The parameters become the mean of the ranks'."""
        return (self.rate, self.momentum) == (1.0, 0.0)

    def __str__(self) -> str:
        outer = AVERAGE if self.averages else f"{NESTEROV}:{self.rate!r}:{self.momentum!r}"
        return f"period={self.period},outer={outer}"


def rounds_of(field: str, text: str, given: Mapping[str, str]) -> LocalRounds | None:
    """The rounds that the pairs `given` of a `text` ask for; None: all ranks exchange at each batch.

    Raises InvalidArgumentError with the limit that was passed.
    """
    if "period" not in given:
        if "outer" in given:
            limit = "a period too, as in period=32: outer says what becomes of a round of local steps"
            raise InvalidArgumentError.of_field(field, text, limit)
        return None
    period = given["period"]
    number = int(period) if period.isascii() and period.isdecimal() and len(period) <= 9 else 0
    if not 1 <= number <= MAX_PERIOD:
        limit = f"a period of 1 to {MAX_PERIOD:,} batches, a whole number, as in period=16"
        raise InvalidArgumentError.of_field(field, text, limit)
    return LocalRounds(number, *_outer(field, text, given.get("outer", AVERAGE)))


def _outer(field: str, text: str, value: str) -> tuple[float, float]:
    name, *numbers = value.split(":")
    if value == AVERAGE:
        return 1.0, 0.0
    if name != NESTEROV:
        near = nearest(name, (AVERAGE, NESTEROV))
        limit = f"of an outer that is there ({', '.join(OUTER_CHOICES)})"
        raise InvalidArgumentError.of_field(
            field, text, f"{limit}{f', did you mean {near[0]}?' * bool(near)}"
        )
    rate, momentum = (_number(number) for number in numbers) if len(numbers) == 2 else (math.nan, math.nan)
    if not (0 < rate <= MAX_RATE and 0 <= momentum < 1):
        limit = (
            f"{NESTEROV}:RATE:MOMENTUM with a RATE above 0 and at most {MAX_RATE:g}, and a MOMENTUM from 0 "
        )
        raise InvalidArgumentError.of_field(field, text, f"{limit}and below 1, as in {NESTEROV}:0.7:0.9")
    return rate, momentum


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
