"""When another node is asked the same, and what follows where answers differ: pure rules.

Adaptive replication, as BOINC does it (D. Anderson, BOINC: A Platform for Volunteer Computing, 2020): who was
found right often is checked seldom,

    chance = max(1 %, 1 / (1 + agreements)),

so a liar is found at once or has to answer right for a long time first, and honest nodes cost little more
than single answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

SHORTEST_CHANCE = 0.01
# Of what a row spans. Sums in another order differ by 1e-6 to 1e-4 in float32, by 1e-3 to 1e-2 in TF32 and
# half precision; a lie below it changes which output is the largest in near ties only.
TOLERANCE = 0.02
ROUNDING = 1e-4  # of a row's largest value: its digits are lost where all values lie close together
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class OpinionVerdict:
    """What answers say of who gave them, by the answers' names in the order they came.

    `right`: the answer of most, first the one to be taken; empty where there is no majority, and then all are
    `doubtful`. `wrong`: those that differ from it.
    """

    right: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()


def chance_of_asking(agreements: int) -> float:
    """How likely another is asked, after so many agreements of the node: 1 for one that was never checked."""
    return max(SHORTEST_CHANCE, 1 / (1 + agreements))


def alike(one: Array, other: Array) -> bool:
    """Whether two outputs [n, ...] are the same but for rounding; whole numbers have to be equal."""
    if one.shape != other.shape:
        return False
    if one.dtype.kind != "f" or other.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    a, b = (rows.reshape(len(rows), -1).astype(np.float64) for rows in (one, other))
    if a.shape[1] == 0:
        return True
    allowed = TOLERANCE * np.minimum(_span(a), _span(b)) + ROUNDING * np.minimum(_largest(a), _largest(b))
    return bool((np.abs(a - b).max(axis=1) <= allowed).all())


def verdict(answers: Mapping[str, Array], own: str = "") -> OpinionVerdict:
    """Whom most others bear out. The answer named `own` was computed by the caller and decides alone."""
    like = {name: tuple(n for n in answers if alike(answers[name], answers[n])) for name in answers}
    best = own or max(like, key=lambda name: len(like[name]))
    right = like[best]
    if not own and 2 * len(right) <= len(answers):
        return OpinionVerdict(doubtful=tuple(answers))
    return OpinionVerdict(right, tuple(name for name in answers if name not in right))


def _span(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """From the least to the largest of each row; of a single number its size."""
    spans: npt.NDArray[np.float64] = np.ptp(rows, axis=1) if rows.shape[1] > 1 else np.abs(rows[:, 0])
    return spans


def _largest(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    largest: npt.NDArray[np.float64] = np.abs(rows).max(axis=1)
    return largest
