"""Local rounds: how many batches a rank trains on by itself, and what becomes of the ranks' changes.

Local SGD is that of Stich (ICLR 2019), whose parameters are averaged; DiLoCo that of Douillard et al.
(arXiv 2311.08105), where an outer optimiser with Nesterov momentum takes the mean change for a gradient; with
an outer Adam it is the FedAdam of Reddi et al. (ICLR 2021). Changes that travel while the next round is
computed are those of CoCoD-SGD (Shen et al., IJCAI 2019), and with an outer optimiser the eager updates of
Kale et al. (arXiv 2502.12996). Pure functions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from peerloom.errors import InvalidArgumentError, nearest
from peerloom.kit.averaged_parts import PARTIAL, AveragedParts, partial_of
from peerloom.kit.rank_groups import RankGroups, groups_of
from peerloom.kit.whole_numbers import as_whole

AVERAGE, NESTEROV, ADAM = "average", "nesterov", "adam"
PERIOD_CHOICES = {"H": "each rank makes H steps by itself, then the ranks' changes are exchanged"}
OUTER_CHOICES = {
    AVERAGE: "the parameters become the ranks' mean, weighted by samples",
    f"{NESTEROV}:RATE:MOMENTUM": "an outer SGD with Nesterov momentum moves them by the ranks' mean change",
    f"{ADAM}:RATE": "an outer Adam moves them by the ranks' mean change",
}
DELAY_CHOICES = {
    "0": "all wait until a round's changes are exchanged",
    "1": "a round's changes travel while the next round is computed, which each begins where it is",
}
MAX_PERIOD, MAX_RATE = 10_000, 10.0


@dataclass(frozen=True)
class LocalRounds:
    """`period` batches a round (1 or more), and an outer SGD of `rate` with Nesterov `momentum` (0: none).

    With `adam` the outer optimiser is Adam, of the same rate. `delay` rounds later (0 or 1) a round's changes
    have come from all. With `groups` some ranks average with each other before a round's end, with `partial`
    all average some of the values.
    """

    period: int
    rate: float = 1.0
    momentum: float = 0.0
    adam: bool = False
    delay: int = 0
    groups: RankGroups | None = None
    partial: AveragedParts | None = None

    @property
    def averages(self) -> bool:
        """The parameters become the mean of the ranks'."""
        return (self.rate, self.momentum, self.adam) == (1.0, 0.0, False)

    def __str__(self) -> str:
        outer = AVERAGE if self.averages else f"{NESTEROV}:{self.rate!r}:{self.momentum!r}"
        outer = f"{ADAM}:{self.rate!r}" if self.adam else outer
        told = [f"period={self.period}", f"outer={outer}"]
        told += [f"delay={self.delay}"] * bool(self.delay)
        told += [str(each) for each in (self.groups, self.partial) if each is not None]
        return ",".join(told)


def rounds_of(field: str, text: str, given: Mapping[str, str]) -> LocalRounds | None:
    """The rounds that the pairs `given` of a `text` ask for; None: all ranks exchange at each batch.

    Raises InvalidArgumentError with the limit that was passed.
    """
    if "period" not in given:
        for key, says in (
            ("outer", "what becomes of"),
            ("delay", "when all know of"),
            ("groups", "who averages within"),
            (PARTIAL, "how much all average within"),
        ):
            if key in given:
                limit = f"a period too, as in period=32: {key} says {says} a round of local steps"
                raise InvalidArgumentError.of_field(field, text, limit)
        return None
    number = as_whole(given["period"])
    if not 1 <= number <= MAX_PERIOD:
        limit = f"a period of 1 to {MAX_PERIOD:,} batches, a whole number, as in period=16"
        raise InvalidArgumentError.of_field(field, text, limit)
    if (delay := given.get("delay", "0")) not in DELAY_CHOICES:
        raise InvalidArgumentError.of_field(field, text, "a delay of 0 or 1 rounds, as in delay=1")
    groups = groups_of(field, text, given["groups"], number) if "groups" in given else None
    partial = partial_of(field, text, given[PARTIAL], number) if PARTIAL in given else None
    outer = _outer(field, text, number, given.get("outer", AVERAGE))
    return replace(outer, delay=int(delay), groups=groups, partial=partial)


def rounds_from(text: str) -> LocalRounds | None:
    """The rounds that were written as `text`; None for an empty one. Raises as `rounds_of`, or ValueError."""
    return rounds_of("rounds", text, dict(pair.split("=") for pair in text.split(","))) if text else None


def _outer(field: str, text: str, period: int, value: str) -> LocalRounds:
    name, *numbers = value.split(":")
    if value == AVERAGE:
        return LocalRounds(period)
    if name not in (NESTEROV, ADAM):
        near = nearest(name, (AVERAGE, NESTEROV, ADAM))
        limit = f"of an outer that is there ({', '.join(OUTER_CHOICES)})"
        raise InvalidArgumentError.of_field(
            field, text, f"{limit}{f', did you mean {near[0]}?' * bool(near)}"
        )
    is_whole = len(numbers) == (1 if name == ADAM else 2)
    rate, momentum = (_number(number) for number in [*numbers, "0"][:2]) if is_whole else (math.nan, math.nan)
    if not (0 < rate <= MAX_RATE and 0 <= momentum < 1):
        form, example = f"{ADAM}:RATE", f"{ADAM}:0.01"
        if name == NESTEROV:
            form, example = f"{NESTEROV}:RATE:MOMENTUM", f"{NESTEROV}:0.7:0.9"
        limit = f"{form} with a RATE above 0 and at most {MAX_RATE:g}"
        also = ", and a MOMENTUM from 0 and below 1" * (name == NESTEROV)
        raise InvalidArgumentError.of_field(field, text, f"{limit}{also}, as in {example}")
    return LocalRounds(period, rate, momentum, adam=name == ADAM)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
