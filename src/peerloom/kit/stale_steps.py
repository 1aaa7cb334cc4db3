"""What `staleness`, `late` and `backup` of a `sync` ask for: gradients of older parameters. Pure functions.

A batch is cut into parts of equal size. Who has computed one takes the next, and a step is committed as soon
as a batch's worth of parts is there, whoever brought them. The bound is that of SSP (Ho et al., NeurIPS
2013), to go on without the last ones comes from Chen et al. (arXiv 1604.00981), and the weight from FedAsync
(Xie, Koyejo, Gupta, arXiv 1903.03934).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from peerloom.errors import InvalidArgumentError
from peerloom.kit.whole_numbers import as_whole

SSP, ASP = "ssp", "asp"
ANY, MERGE, WEIGHTED = "any", "merge", "weighted"
STALENESS_CHOICES = {
    "S": "a gradient counts that began at most S steps ago; who is further behind is waited for (SSP)",
    ANY: "however old (ASP)",
}
LATE_CHOICES = {
    MERGE: "an older gradient counts in full",
    WEIGHTED: "it counts 1 / sqrt(1 + age) times",
}
BACKUP_CHOICES = {
    "PART": "a step takes a part from so many of the ranks; who is beyond the bound is refused, not awaited"
}
STALE_KEYS = ("staleness", "late", "backup")
MAX_STALENESS = 1000


@dataclass(frozen=True)
class StaleSteps:
    """`bound` is how many steps old parameters may be, None: any number; `weighted` says that age counts.

    `backup` is the part of the ranks that a step needs, 0: who is beyond the bound is waited for.
    """

    bound: int | None = 0
    weighted: bool = False
    backup: float = 0.0

    def parts(self, batch: int, workers: int) -> int:
        """Into how many parts of equal size a batch of so many samples is cut for so many workers.

        As many as there are workers, or up to twice as many; with a backup as many as are needed. Where none
        of these leaves equal parts, fewer.
        """
        needed = self.needed(workers)
        more = range(needed, needed + 1 if self.backup else 2 * needed + 1)
        fitting: list[int] = [parts for parts in (*more, *range(needed, 0, -1)) if batch % parts == 0]
        return fitting[0]

    def needed(self, workers: int) -> int:
        """Of how many workers a step needs a part."""
        # Of ten, 0.9 are nine; its product with ten may be a little more.
        return max(1, math.ceil(self.backup * workers - 1e-9)) if self.backup else workers

    def allows(self, age: int) -> bool:
        """Whether a gradient counts that is so many steps old."""
        return self.bound is None or age <= self.bound

    def weight(self, age: int) -> float:
        """How many times it counts, then."""
        return 1 / math.sqrt(1 + age) if self.weighted else 1.0

    def __str__(self) -> str:
        bound = ANY if self.bound is None else self.bound
        backup = f",backup={self.backup!r}" if self.backup else ""
        return f"staleness={bound},late={WEIGHTED if self.weighted else MERGE}{backup}"


def expanded(field: str, text: str) -> str:
    """The pairs of a `text` that begins with ssp:S or asp; others as they are.

    Raises InvalidArgumentError for an ssp without its bound.
    """
    word, comma, rest = text.partition(",")
    name, _, bound = word.partition(":")
    if word == ASP:
        return f"staleness={ANY}{comma}{rest}"
    if name == SSP:
        if not bound:
            limit = f"{SSP}:S, as in {SSP}:2: S is how many steps old a gradient may be; {ASP} has no bound"
            raise InvalidArgumentError.of_field(field, text, limit)
        return f"staleness={bound}{comma}{rest}"
    return text


def stale_of(field: str, text: str, given: Mapping[str, str]) -> StaleSteps | None:
    """What the pairs `given` of a `text` ask for; None: all gradients are those of the newest parameters.

    Raises InvalidArgumentError with the limit that was passed.
    """
    if not any(key in given for key in STALE_KEYS):
        return None
    if "late" in given and "staleness" not in given:
        limit = "a staleness too, as in staleness=2: late says what an older gradient counts"
        raise InvalidArgumentError.of_field(field, text, limit)
    late = given.get("late", MERGE)
    if late not in LATE_CHOICES:
        limit = f"of a late that is there ({', '.join(LATE_CHOICES)})"
        raise InvalidArgumentError.of_field(field, text, limit)
    bound = _bound(field, text, given.get("staleness", "0"))
    backup = _backup(field, text, given["backup"]) if "backup" in given else 0.0
    if bound is None and backup:
        limit = f"a bound, as in staleness=2, or no backup: with {ANY} nobody is waited for anyway"
        raise InvalidArgumentError.of_field(field, text, limit)
    return StaleSteps(bound, late == WEIGHTED, backup)


def _bound(field: str, text: str, value: str) -> int | None:
    if value == ANY:
        return None
    bound = as_whole(value, len(str(MAX_STALENESS)))
    if not 0 <= bound <= MAX_STALENESS:
        limit = f"a staleness of 0 to {MAX_STALENESS:,} steps, a whole number, or {ANY}"
        raise InvalidArgumentError.of_field(field, text, limit)
    return bound


def _backup(field: str, text: str, value: str) -> float:
    try:
        part = float(value)
    except ValueError:
        part = math.nan
    if not 0 < part <= 1:
        limit = "a backup above 0 and at most 1, the part of the ranks that a step needs, as in backup=0.9"
        raise InvalidArgumentError.of_field(field, text, limit)
    return part
