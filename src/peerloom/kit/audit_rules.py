"""When a worker's share is computed again, what counts as a lie, and who is dismissed for it: pure functions.

A worker that audits computes the gradient of another's share anew and compares it with what that one sent.
An owner has one word about each node, however many workers it has. A node is dismissed on the word of more
than half of the owners. Of an accuser and the accused one lies, so the liars are among all pairs; when even
the fewest that explain these are half of the owners, the task comes out different on different machines, and
nobody is dismissed. Less than half of liars can't bring that about: each pair has one of them.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean

# Beyond this part of the gradient's norm a difference is a lie. Other processors and other orders of adding
# differ by 1e-6 to 1e-4 in float32, by 1e-3 with TF32, by 4e-3 with bfloat16; flipped signs by 2, and a mean
# that is moved by less than this is moved by less than one batch differs from the next.
TOLERANCE = 0.02
# Of the largest norm that was computed here: below it, as when a model fits its samples, rounding is all.
NOISE_FLOOR = 1e-3
AUDITED_TIME = 0.04  # of a group's time in the long run: all wait for the one whose audit takes longest
ORDERED_STEPS = 3
MOST_CHARGES = 32  # of an owner; a job's record keeps them, and is written at every step
MAX_DIFFERENCE = 1e6  # what is told of a difference; larger ones say no more


def audit_rate(steps_together: int, cost: float) -> float:
    """The chance that a group audits a step, all at once; `cost` is how many shares' time that takes.

    It falls like 1 / (steps + 1) with the steps that the members have made together, of whom came last, to
    4 % / cost: who lies from the start is met at the start, and who begins later as often as is paid for.
    """
    return max(AUDITED_TIME / cost, 1 / (steps_together + 1))


def is_audited(coin: bytes, rate: float) -> bool:
    """Whether a step is audited that has this common coin; its last 8 bytes are for `partner`."""
    return int.from_bytes(coin[:8], "big") < rate * 2**64


def partner(rank: int, owners: Sequence[str], counts: Sequence[int], coin: bytes) -> list[int]:
    """Whose share this rank computes in an audited step: each is audited by one other, drawn by the coin.

    Of the ranks with samples the one that comes so many places after; none if it has the same owner.
    """
    there = [other for other, count in enumerate(counts) if count]
    if rank not in there or len(there) < 2:
        return []
    return _after(rank, there, owners, 1 + int.from_bytes(coin[-8:], "big") % (len(there) - 1))


def _after(rank: int, there: Sequence[int], owners: Sequence[str], places: int) -> list[int]:
    other = there[(there.index(rank) + places) % len(there)]
    return [other] if owners[other] != owners[rank] else []


@lru_cache(maxsize=8)  # counts change seldom, and this is asked in every step
def audit_cost(owners: tuple[str, ...], counts: tuple[int, ...]) -> float:
    """How many times a share's own time an audited step takes more, on average over all draws; 1 or more.

    Shares follow speeds, so a rank needs counts[other] / counts[rank] of its own time for another's share.
    """
    there = [rank for rank, count in enumerate(counts) if count]
    slowest = [
        max((counts[o] / counts[r] for r in there for o in _after(r, there, owners, places)), default=1.0)
        for places in range(1, len(there))
    ]
    return max(1.0, fmean(slowest)) if slowest else 1.0


def relative_difference(apart: float, computed: float, largest: float) -> float:
    """How far what was said is from what was computed, by norms; `largest` is that of all computed until now.

    0 to 1e6; 0 where all are 0.
    """
    norm = max(computed, NOISE_FLOOR * largest)
    if not apart:
        return 0.0
    ratio = apart / norm if norm else math.inf
    return min(ratio, MAX_DIFFERENCE) if math.isfinite(ratio) else MAX_DIFFERENCE


@dataclass(frozen=True)
class Charge:
    """The word of an owner that a node, of another owner, lied."""

    by_owner: str
    node_id: str
    node_owner: str


@dataclass(frozen=True)
class Judgement:
    """What a charge leads to, and why.

    `is_new`: of its pair, so that others shall look too; `dismisses`: the node lied; `is_void`: no minority
    of liars explains all charges, so the task comes out different on different machines.
    """

    is_new: bool
    reason: str
    dismisses: bool = False
    is_void: bool = False


def judge(known: Collection[Charge], said: Charge, owners: Collection[str]) -> Judgement:
    """What one more charge leads to in a generation of these `owners`; `known` are those before it."""
    if said.by_owner == said.node_owner or said.by_owner not in owners:
        return Judgement(False, "an owner's word about its own nodes, or from outside, counts nothing")
    if said in known:
        return Judgement(False, "this owner has said so before")
    if sum(one.by_owner == said.by_owner for one in known) >= MOST_CHARGES:
        return Judgement(False, f"this owner accuses {MOST_CHARGES} other nodes")
    charges = [one for one in (*known, said) if {one.by_owner, one.node_owner} <= set(owners)]
    pairs = [(one.by_owner, one.node_owner) for one in charges]
    if len(owners) > 2 and least_liars(pairs) >= len(owners) / 2:
        return Judgement(
            True,
            "so many owners accuse one another that the task must come out different on different machines: "
            "its data and its random numbers have to be the same on all",
            is_void=True,
        )
    accusers = {one.by_owner for one in charges if one.node_id == said.node_id}
    reason = f"{len(accusers)} of {len(owners)} owners computed its work again and found something else"
    return Judgement(True, reason, dismisses=len(accusers) > len(owners) / 2)


def is_unrepeatable(said_by: Collection[str], owners: Collection[str]) -> bool:
    """Whether the task can't be repeated, by the word of more than half of the owners."""
    return len(set(said_by) & set(owners)) > len(owners) / 2


def least_liars(accusations: Iterable[tuple[str, str]]) -> float:
    """The fewest liars by whom all these pairs (accuser, accused) can be explained, or less; in halves.

    Each pair has a liar, so the liars cover all pairs. The least fractional cover of a graph is half the
    largest matching of its double cover (Nemhauser, Trotter, 1975), and never above the least whole one.
    """
    near: dict[str, set[str]] = {}
    for one, other in accusations:
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    matched: dict[str, str] = {}
    return sum(_match(name, near, matched, set()) for name in sorted(near)) / 2


def _match(name: str, near: Mapping[str, set[str]], matched: dict[str, str], seen: set[str]) -> bool:
    for other in sorted(near[name] - seen):
        seen.add(other)
        if other not in matched or _match(matched[other], near, matched, seen):
            matched[other] = name
            return True
    return False


def first_targets(rank: int, owners: Sequence[str], counts: Sequence[int]) -> list[int]:
    """Whose shares a rank computes again in its first step: its own, and its next neighbour's.

    So that of each two owners one has looked at the other before long: where all differ, all see it.
    """
    others = targets(rank, owners, counts)
    after = [other for other in others if other > rank] or others
    return [rank, *after[:1]] if counts[rank] else []


def targets(rank: int, owners: Sequence[str], counts: Sequence[int]) -> list[int]:
    """The ranks that a rank may audit: those of other owners that have samples."""
    return [other for other, count in enumerate(counts) if count and owners[other] != owners[rank]]
