"""A node's track record, fading: what was seen of it, each fact worth half as much after each half-life.

Pure arithmetic. A count is the sum of 2^(-age / half_life_s) over its facts. A session of length L that ended
at age a leaves the exposure

    2^(-a / half_life_s) * (1 - 2^(-L / half_life_s)) * half_life_s / ln 2,

which is the integral of the same weight over the time it lasted; an open session is the case a = 0.

Three things change faster than a half-life, and are kept so that what is recent weighs first. `suspicion` is
a cumulative sum (E. S. Page, Continuous Inspection Schemes, Biometrika 41, 1954) of log likelihood ratios,
"it has turned bad" to "it is as it was": each request that it failed adds FAILED, each that it met takes MET
off, between 0 and MOST_SUSPICION. `recent_speeds` and `recent_speed_total` forget by the measurement: the one
before counts KEPT_A_SPEED. `session_logs` and `session_log_squares` sum up ln(1 + length in seconds) of ended
sessions and its square, so that a node's sessions have a typical length and a spread.

`observe` changes one node's record by one fact, for whoever keeps records (the service's database, the
simulator). The functions of columns below it take arrays, and a number just as well.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from peerloom.errors import ConfigurationError
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

HALF_LIFE_S = 14 * 86_400.0
SHORTEST_HALF_LIFE_S, LONGEST_HALF_LIFE_S = 60.0, 3.2e9
_LN2 = math.log(2)
# A node that is as it was fails one request of ten at most, one that has turned bad eight of ten.
FAILED, MET, MOST_SUSPICION = math.log(0.8 / 0.1), math.log(0.9 / 0.2), 9.0
KEPT_A_SPEED = 0.6
_NOT_DONE = (EVIDENCE_KIND_UNFINISHED, EVIDENCE_KIND_WRONG_ANSWER, EVIDENCE_KIND_LIE)
Floats = npt.NDArray[np.float64]


class Track(NamedTuple):
    """Faded sums as of `at_s` (seconds since 1970, the newest fact); all zero for a newcomer.

    `interruptions` are sessions that ended without notice, `departures` those that ended with it;
    `speed_total` is the sum of `speeds` machine speeds of one slot, from trainings (machine_speed.py), in 1e9
    operations a second; `slots_given` is no sum but the most slots that it gave to one training. A wrong
    answer and a lie are work not done, so they are in `unfinished`; a lie is in `lies` besides.
    """

    at_s: float = 0.0
    exposure_s: float = 0.0
    interruptions: float = 0.0
    departures: float = 0.0
    trainings: float = 0.0
    unfinished: float = 0.0
    transfers: float = 0.0
    transfer_s: float = 0.0
    transfer_bytes: float = 0.0
    speeds: float = 0.0
    speed_total: float = 0.0
    slots_given: float = 0.0
    lies: float = 0.0
    suspicion: float = 0.0
    recent_speeds: float = 0.0
    recent_speed_total: float = 0.0
    session_logs: float = 0.0
    session_log_squares: float = 0.0

    @property
    def machine_gflops(self) -> float:
        """The mean machine speed of one slot so far; 0: never measured."""
        return self.speed_total / self.speeds if self.speeds > 0 else 0.0


TRACK = Track._fields


def check_half_life(half_life_s: float) -> None:
    """Raises ConfigurationError for a half-life that is no number, too short, or as good as endless."""
    if not SHORTEST_HALF_LIFE_S <= half_life_s <= LONGEST_HALF_LIFE_S:
        raise ConfigurationError(
            f"the half-life of evidence is {half_life_s!r} s, but must be {SHORTEST_HALF_LIFE_S:,.0f} to "
            f"{LONGEST_HALF_LIFE_S:,.0f} s: a fact is worth 2^(-age / half_life), and without fading the "
            "sum of such facts would grow without bound."
        )


def observe(
    before: Track,
    kind: EvidenceKind.ValueType,
    *,
    time_s: float,
    half_life_s: float,
    delay_s: float = 0.0,
    online_s: float = 0.0,
    transfer_bytes: float = 0.0,
    speed_gflops: float = 0.0,
    slots: float = 0.0,
) -> Track:
    """One fact about one node, seen at `time_s`; facts may come out of order.

    `delay_s` (seconds) and `transfer_bytes` belong to a TRANSFER, `online_s` to the end of a session,
    `speed_gflops` (the machine's; 0: not measured) and `slots` (given; 0: not told) to a TRAINING.
    """
    newest_s = before.at_s
    at_s = max(newest_s, time_s)
    kept, new = 2.0 ** ((newest_s - at_s) / half_life_s), 2.0 ** ((time_s - at_s) / half_life_s)
    seen = new * _exposure_s(online_s, half_life_s) if online_s else 0.0
    transfer = new if kind == EVIDENCE_KIND_TRANSFER else 0.0
    speeds = new if speed_gflops > 0 and kind == EVIDENCE_KIND_TRAINING else 0.0
    given = new * slots if kind == EVIDENCE_KIND_TRAINING else 0.0
    ended = kind in (EVIDENCE_KIND_INTERRUPTION, EVIDENCE_KIND_SESSION_ENDED)
    log = math.log1p(max(0.0, online_s)) if ended else 0.0
    recent = kept * KEPT_A_SPEED if speeds else kept
    return Track(
        at_s,
        kept * before.exposure_s + (seen if ended else 0.0),
        kept * before.interruptions + (new if kind == EVIDENCE_KIND_INTERRUPTION else 0.0),
        kept * before.departures + (new if kind == EVIDENCE_KIND_SESSION_ENDED else 0.0),
        kept * before.trainings + (new if kind == EVIDENCE_KIND_TRAINING else 0.0),
        kept * before.unfinished + (new if kind in _NOT_DONE else 0.0),
        kept * before.transfers + transfer,
        kept * before.transfer_s + transfer * delay_s,
        kept * before.transfer_bytes + transfer * transfer_bytes,
        kept * before.speeds + speeds,
        kept * before.speed_total + speeds * speed_gflops,
        max(kept * before.slots_given, given),
        kept * before.lies + (new if kind == EVIDENCE_KIND_LIE else 0.0),
        _suspicion(kept * before.suspicion, kind, new),
        recent * before.recent_speeds + speeds,
        recent * before.recent_speed_total + speeds * speed_gflops,
        kept * before.session_logs + new * log,
        kept * before.session_log_squares + new * log * log,
    )


def _suspicion(before: float, kind: EvidenceKind.ValueType, new: float) -> float:
    if kind in _NOT_DONE:
        return min(MOST_SUSPICION, before + new * FAILED)
    return max(0.0, before - new * MET) if kind == EVIDENCE_KIND_TRAINING else before


def _exposure_s(online_s: float, half_life_s: float) -> float:
    return -math.expm1(-_LN2 * online_s / half_life_s) * half_life_s / _LN2


def faded(total: float, at_s: float, now_s: float, half_life_s: float) -> float:
    """What a sum as of `at_s` is still worth at `now_s`."""
    return float(total * 2.0 ** (min(at_s - now_s, 0.0) / half_life_s))


def worth(at_s: Floats, now_s: float, half_life_s: float) -> Floats:
    """What sums as of `at_s` are still worth at `now_s`, 0 to 1."""
    weights: Floats = np.exp2(np.minimum(at_s - now_s, 0.0) / half_life_s)
    return weights


def open_exposure_s(session_start_s: Floats, now_s: float, half_life_s: float) -> Floats:
    """The exposure of sessions open since `session_start_s` (NaN: none is open)."""
    online_s = np.nan_to_num(np.maximum(now_s - session_start_s, 0.0), nan=0.0)
    exposure: Floats = -np.expm1(-_LN2 * online_s / half_life_s) * half_life_s / _LN2
    return exposure
