"""Lies: who may tell of them, when many words prove one, and what a proven one costs. Pure.

The thesis knows no lies, so none of this is in its formula (formula.py). Beside it stands

    belief = min(formula (4), -LIE_PRICE * lies)

for a node with one proven lie or more: with the printed weights no other fact, nor a hundred thousand of
them, takes an honest node as low, and nothing that a liar earned before or earns after lifts it again.

A lie is proven by a trainer, which saw most owners of a job find something else, or by VOICES different
reporters (owners, by their certificates) who say within VOICES_WITHIN_S that the node answered wrongly. The
word of one is an unfinished request more, with the limits of one reporter (movement.py).

Who lied is left out of every selection while its lies, which fade as all evidence does, sum up to
BARRED_FROM or more: for two half-lives after one lie. One node may be broken without its owner's knowledge;
where LIARS_OF_OWNER nodes of one owner are left out, all of that owner's are.
"""

import math
from collections.abc import Collection, Iterable

import numpy as np
import numpy.typing as npt

from peerloom.errors import PermissionDeniedError
from peerloom.kit.limits import LIE_PRICE
from peerloom.kit.principal import Principal, Role
from peerloom.services.selector.belief.track import worth
from peerloom.v1.selector_pb2 import EVIDENCE_KIND_LIE, EVIDENCE_KIND_WRONG_ANSWER, EvidenceKind

VOICES = 3
VOICES_WITHIN_S = 7 * 86_400.0
BARRED_FROM = 0.25
LIARS_OF_OWNER = 2
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def check_may_prove(kinds: Iterable[EvidenceKind.ValueType], caller: Principal | None) -> None:
    """Raises PermissionDeniedError for a lie told by anybody but a trainer; without certificates anybody may.

    A plain system can't tell a trainer from others, and trusts every machine that reaches it.
    """
    if caller is not None and caller.role is not Role.TRAINER and EVIDENCE_KIND_LIE in kinds:
        raise PermissionDeniedError(
            f"{caller} can't prove a lie: that is for trainers, which compare the owners of a job. Whoever "
            "got a wrong answer reports EVIDENCE_KIND_WRONG_ANSWER.",
            reason="ROLE_MAY_NOT",
            metadata={"role": caller.role},
        )


def counted_kind(
    kind: EvidenceKind.ValueType, reporter: str, others: Collection[str]
) -> EvidenceKind.ValueType:
    """As what a fact counts: the wrong answer of which the VOICES-th reporter tells is a lie.

    `others` are the reporters who told of wrong answers of this node within VOICES_WITHIN_S before.
    """
    completes = reporter not in others and len(set(others)) == VOICES - 1
    return EVIDENCE_KIND_LIE if kind == EVIDENCE_KIND_WRONG_ANSWER and completes else kind


def lowered(belief: float, lies: int) -> float:
    """What formula (4) gave, or what is left of it after so many proven lies."""
    return min(belief, -LIE_PRICE * lies) if lies else belief


def barred(lies: Floats, at_s: Floats, now_s: float, half_life_s: float) -> Mask:
    """Which nodes are left out for their own lies; `lies` are faded sums as of `at_s`."""
    return lies * worth(at_s, now_s, half_life_s) >= BARRED_FROM


def barred_with_owner(own: Mask, owner: npt.NDArray[np.int32]) -> Mask:
    """Which nodes are left out with their owner (by number, -1: none), who has several that are."""
    counts = np.bincount(owner[own & (owner >= 0)], minlength=1)
    hostile = np.flatnonzero(counts >= LIARS_OF_OWNER)
    return np.isin(owner, hostile) & ~own


def barred_for_s(lies: float, half_life_s: float) -> float:
    """How long lies that sum up to this now keep a node out, in seconds; 0: they don't."""
    return half_life_s * math.log2(lies / BARRED_FROM) if lies > BARRED_FROM else 0.0
