"""Who computes which part of an epoch, which parts a step takes, and which are refused: pure functions.

A step takes a fixed number of parts, the oldest first. With a bound S, and nobody refused, a step waits until
those that it leaves can all be taken by the time they are S steps old: at most `per_step` times the steps
that are left to them. Parts are handed out only while that can come true.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from peerloom.kit.quantity_texts import plural
from peerloom.kit.stale_steps import StaleSteps

NOT_BEGUN = -1
MOST_HELD = 4  # parts of a rank; each that waits for its step is a gradient in its memory
ROW_PAUSE_S = 0.005  # who computes keeps a row that all others have told for so long at most


@dataclass(frozen=True)
class BatchPart:
    """A part of an epoch by its `number`; the `version` of the parameters that its rank began it with.

    `loss` is the mean over its samples, once it `is_done`.
    """

    number: int
    version: int = NOT_BEGUN
    is_done: bool = False
    loss: float = 0.0


@dataclass(frozen=True)
class Row:
    """The parts of one rank; `is_busy` with one that was refused; asked to leave the group (`leaves`)."""

    parts: tuple[BatchPart, ...] = ()
    is_busy: bool = False
    leaves: bool = False


@dataclass(frozen=True)
class Taken:
    """A part that a step takes, or refuses, and how many steps old its parameters are; of whose `rank`."""

    rank: int
    part: BatchPart
    age: int


@dataclass(frozen=True)
class HandOut:
    """How far an epoch has come, or what was left of it when its generation began.

    It has `total` parts, of which a step takes `per_step`, and its last one the rest; `ends_short` says that
    the last part has fewer samples, and so belongs to that one. `handed` numbers were given out, `returned`
    are those that were refused, `counted` is how many have counted. `rows` are the newest, by rank.
    """

    stale: StaleSteps
    total: int
    per_step: int
    ends_short: bool
    rows: tuple[Row, ...]
    handed: int = 0
    returned: tuple[int, ...] = ()
    counted: int = 0

    @property
    def needed(self) -> int:
        """Parts that the next step takes."""
        return min(self.per_step, self.total - self.counted)

    @property
    def left(self) -> int:
        """Parts that nobody has."""
        return len(self.returned) + self.total - self.handed


def handed_out(now: HandOut) -> tuple[HandOut, list[list[int]]]:
    """The numbers that each rank gets to compute, in turn: those with nothing to do come first.

    With a bound above 0 each gets one ahead, so that it needn't wait, but not at an epoch's end.
    """
    ranks = range(len(now.rows))
    given: list[list[int]] = [[] for _ in ranks]
    waiting = [sum(not part.is_done for part in row.parts) + row.is_busy for row in now.rows]
    room = [MOST_HELD - len(row.parts) for row in now.rows]
    budget = _budget(now) - sum(len(row.parts) for row in now.rows)
    while budget > 0 and now.left:
        ahead = now.stale.bound != 0 and now.left > len(ranks)
        fitting = [rank for rank in ranks if room[rank] > 0 and waiting[rank] < 1 + ahead]
        if not fitting:
            break
        rank = min(fitting, key=lambda rank: (waiting[rank], -room[rank], rank))
        now, number = _next(now)
        given[rank].append(number)
        waiting[rank], room[rank], budget = waiting[rank] + 1, room[rank] - 1, budget - 1
    rows = [
        replace(row, parts=(*row.parts, *map(BatchPart, numbers)))
        for row, numbers in zip(now.rows, given, strict=True)
    ]
    return replace(now, rows=tuple(rows)), given


def taken(now: HandOut, newest: int) -> list[Taken]:
    """The parts of a step that makes version `newest` + 1, the oldest first; none while it can't end."""
    begun = [
        Taken(rank, part, newest - part.version)
        for rank, row in enumerate(now.rows)
        for part in row.parts
        if part.version != NOT_BEGUN
    ]
    is_last = now.total - now.counted <= now.per_step
    kept_back = now.total - 1 if now.ends_short and not is_last else NOT_BEGUN
    done = [each for each in begun if each.part.is_done and each.part.number != kept_back]
    chosen = sorted(done, key=lambda each: (-each.age, each.part.number))[: now.needed]
    if len(chosen) < now.needed or not _can_all_be_taken(now, newest, chosen):
        return []
    return chosen


def after_step(now: HandOut, newest: int, chosen: Sequence[Taken]) -> tuple[HandOut, list[Taken]]:
    """What is left when a step has made version `newest` of the `chosen`, and what is refused then."""
    counted = {each.part.number for each in chosen}
    left = replace(now, rows=_without(now.rows, counted), counted=now.counted + len(chosen))
    return without_late(left, newest)


def without_late(now: HandOut, newest: int) -> tuple[HandOut, list[Taken]]:
    """The same without parts that are older than the bound, and these: their numbers are handed out again."""
    late = [
        Taken(rank, part, newest - part.version)
        for rank, row in enumerate(now.rows)
        for part in row.parts
        if part.version != NOT_BEGUN and not now.stale.allows(newest - part.version)
    ]
    numbers = {each.part.number for each in late}
    at_work = {each.rank for each in late if not each.part.is_done}
    rows = tuple(
        replace(row, is_busy=row.is_busy or rank in at_work)
        for rank, row in enumerate(_without(now.rows, numbers))
    )
    return replace(now, rows=rows, returned=tuple(sorted((*now.returned, *numbers)))), late


def why(each: Taken, stale: StaleSteps, is_refused: bool) -> str:
    """Why a step takes a part, or refuses it, in words."""
    age = plural(each.age, "step")
    if is_refused:
        state = "done" if each.part.is_done else "at work"
        return f"{state}, it is {age} old, and {stale.bound} are allowed: handed out again"
    if not each.age:
        return "it began with the newest version"
    bound = f", of {stale.bound} that are allowed" if stale.bound is not None else ""
    weight = f": counts {stale.weight(each.age):.2f} times" if stale.weighted else ""
    return f"it is {age} old{bound}{weight}"


def _budget(now: HandOut) -> int:
    """Most parts that may be under way at once."""
    bound = now.stale.bound
    if bound is None:
        return MOST_HELD * len(now.rows)
    enough = now.per_step * (bound + 1)
    return max(enough, len(now.rows)) if now.stale.backup else enough


def _next(now: HandOut) -> tuple[HandOut, int]:
    if now.returned:
        return replace(now, returned=now.returned[1:]), now.returned[0]
    return replace(now, handed=now.handed + 1), now.handed


def _without(rows: Sequence[Row], numbers: Collection[int]) -> tuple[Row, ...]:
    return tuple(
        replace(row, parts=tuple(part for part in row.parts if part.number not in numbers)) for row in rows
    )


def _can_all_be_taken(now: HandOut, newest: int, chosen: Sequence[Taken]) -> bool:
    bound = now.stale.bound
    if bound is None or now.stale.backup:
        return True
    numbers = {each.part.number for each in chosen}
    # What isn't begun may begin any moment, with the parameters from before the step.
    versions = [
        newest if part.version == NOT_BEGUN else part.version
        for row in now.rows
        for part in row.parts
        if part.number not in numbers
    ]
    return all(
        sum(newest + 1 - version >= age for version in versions) <= now.per_step * (bound + 1 - age)
        for age in range(1, bound + 2)
    )
