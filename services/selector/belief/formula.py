"""Belief: how one fact moves what we think of a node. Pure arithmetic, from section 4.3 of the thesis.

    score_new    = w.score_old*score_old + w.transmission*transmissions + w.train*trainings - w.delay*delay_s
    time_score   = min(w.time_score_cap, ended_online_log + ln(open_online_s + 1))
    score_reduce = interruptions + unfinished - time_score
    belief       = score_new + time_score - score_reduce

Read exactly, uptime counts twice. It stays so: this is the formula as printed. What a proven lie costs is no
part of it: `lies.lowered` comes after formula (4), and changes nothing for a node without lies.
"""

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

from peerloom.errors import ConfigurationError
from peerloom.services.selector.belief.lies import lowered
from peerloom.v1.selector_pb2 import (
    EVIDENCE_KIND_INTERRUPTION,
    EVIDENCE_KIND_LIE,
    EVIDENCE_KIND_SESSION_ENDED,
    EVIDENCE_KIND_TRAINING,
    EVIDENCE_KIND_TRANSFER,
    EVIDENCE_KIND_UNFINISHED,
    EVIDENCE_KIND_WRONG_ANSWER,
    EvidenceKind,
)

FORMULA = "score_new = score_old*belief_before + transmission*transmissions + train*trainings - delay*delay_s"
_WEIGHT_LIMIT = 1e6
_NOT_DONE = (EVIDENCE_KIND_UNFINISHED, EVIDENCE_KIND_WRONG_ANSWER)


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights and ceiling of the formula; the defaults are the printed ones (delay: 0.1 * 10)."""

    score_old: float = 0.3
    transmission: float = 0.1
    train: float = 0.5
    delay: float = 1.0
    time_score_cap: float = 10.0


def check_weights(weights: Weights) -> None:
    """Raises ConfigurationError for a weight that is no number, or that lets a score grow without end."""
    for field in fields(weights):
        value = getattr(weights, field.name)
        if not -_WEIGHT_LIMIT <= value <= _WEIGHT_LIMIT:
            raise ConfigurationError(
                f"the weight {field.name} is {value!r}, but must be a number from "
                f"{-_WEIGHT_LIMIT:,.0f} to {_WEIGHT_LIMIT:,.0f}."
            )
    if weights.time_score_cap < 0:
        raise ConfigurationError(f"time_score_cap is {weights.time_score_cap!r}, but must be 0 or more.")
    if abs(weights.score_old) >= 1:
        raise ConfigurationError(
            f"the weight score_old is {weights.score_old!r}, but must lie between -1 and 1: in {FORMULA} "
            "each update would take the whole belief before it along, and it would grow without bound."
        )


class Reputation(NamedTuple):
    """All that a node has earned so far, and the belief it led to; all zero for a newcomer.

    A tuple, since a simulated month makes millions of them.
    """

    transmissions: int = 0
    trainings: int = 0
    delay_total_s: float = 0.0
    ended_online_log: float = 0.0
    interruptions: int = 0
    unfinished: int = 0
    belief: float = 0.0
    updates: int = 0
    lies: int = 0


@dataclass(frozen=True, slots=True)
class Terms:
    """Every term of one update; `belief` follows from them to the last digit."""

    score_old: float
    transmissions: int
    trainings: int
    delay_s: float
    ended_online_log: float
    open_online_s: float
    interruptions: int
    unfinished: int
    score_new: float
    time_score: float
    score_reduce: float
    weights: Weights
    lies: int = 0

    @property
    def belief(self) -> float:
        """The belief: formula (4) of the thesis, lowered by proven lies."""
        return lowered(self.score_new + self.time_score - self.score_reduce, self.lies)


def update(
    before: Reputation,
    kind: EvidenceKind.ValueType,
    weights: Weights,
    *,
    delay_s: float = 0.0,
    online_s: float = 0.0,
    open_online_s: float = 0.0,
) -> tuple[Reputation, Terms]:
    """One fact about one node: counts first, then the belief. Returns the reputation and why it is so.

    `delay_s` belongs to a TRANSFER, `online_s` is the length of the session that a SESSION_ENDED or an
    INTERRUPTION ended, `open_online_s` the length of the session open now (0: none). Seconds, 0 or more.
    """
    after = reputation_after(
        before, kind, weights, delay_s=delay_s, online_s=online_s, open_online_s=open_online_s
    )
    return after, _terms(after, weights, score_old=before.belief, open_online_s=open_online_s)


def reputation_after(
    before: Reputation,
    kind: EvidenceKind.ValueType,
    weights: Weights,
    *,
    delay_s: float = 0.0,
    online_s: float = 0.0,
    open_online_s: float = 0.0,
) -> Reputation:
    """What `update` returns first, for whoever needs no explanation and has millions of facts."""
    moved = kind == EVIDENCE_KIND_TRANSFER
    broke = kind == EVIDENCE_KIND_INTERRUPTION
    ended = broke or kind == EVIDENCE_KIND_SESSION_ENDED
    # Written out: dataclasses.replace takes several times as long.
    counts = (
        before.transmissions + moved,
        before.trainings + (kind == EVIDENCE_KIND_TRAINING),
        before.delay_total_s + (delay_s if moved else 0.0),
        before.ended_online_log + (math.log(online_s + 1) if ended else 0.0),
        before.interruptions + broke,
        before.unfinished + (kind in _NOT_DONE),
    )
    score_new, time_score, score_reduce = _scores(*counts, weights, before.belief, open_online_s)
    lies = before.lies + (kind == EVIDENCE_KIND_LIE)
    belief = lowered(score_new + time_score - score_reduce, lies)
    return Reputation(*counts, belief, before.updates + 1, lies)


def _scores(
    transmissions: int,
    trainings: int,
    delay_total_s: float,
    ended_online_log: float,
    interruptions: int,
    unfinished: int,
    w: Weights,
    score_old: float,
    open_online_s: float,
) -> tuple[float, float, float]:
    """The scores of formulas (1) to (3) of the thesis: new, of time, and what reduces the belief."""
    delay_s = delay_total_s / transmissions if transmissions else 0.0
    # In the printed order: who computes it again from the stored terms gets the same last digit.
    score_new = (
        w.score_old * score_old + w.transmission * transmissions + w.train * trainings - w.delay * delay_s
    )
    time_score = min(w.time_score_cap, ended_online_log + math.log(open_online_s + 1))
    return score_new, time_score, interruptions + unfinished - time_score


def _terms(counts: Reputation, w: Weights, *, score_old: float, open_online_s: float) -> Terms:
    c = counts
    score_new, time_score, score_reduce = _scores(
        c.transmissions,
        c.trainings,
        c.delay_total_s,
        c.ended_online_log,
        c.interruptions,
        c.unfinished,
        w,
        score_old,
        open_online_s,
    )
    return Terms(
        score_old=score_old,
        transmissions=c.transmissions,
        trainings=c.trainings,
        delay_s=c.delay_total_s / c.transmissions if c.transmissions else 0.0,
        ended_online_log=c.ended_online_log,
        open_online_s=open_online_s,
        interruptions=c.interruptions,
        unfinished=c.unfinished,
        score_new=score_new,
        time_score=time_score,
        score_reduce=score_reduce,
        weights=w,
        lies=c.lies,
    )
