"""What the ledger's entries of steps, federated rounds and steps of parts have in common. Pure functions."""

import math
from typing import Protocol

from peerloom.kit.limits import MAX_REASON_CHARACTERS
from peerloom.v1.trainer_pb2 import LedgerStretch, StepProgress

REFUSED = "refused"
_VERDICTS = ("accepted", "merged", REFUSED)


class ToldPush(Protocol):
    """What a worker handed in for a step, and what became of it."""

    verdict: str
    weight: float
    reason: str


def stretch_of(step: StepProgress, epoch: int) -> LedgerStretch:
    """A stretch with one committed step, whose positions are counted in `epoch`."""
    return LedgerStretch(
        generation=step.generation,
        last_generation=step.generation,
        workers=step.workers,
        first_step=step.step,
        last_step=step.step,
        first_epoch=epoch,
        first_sample=step.first_sample,
        last_epoch=epoch,
        end_sample=step.first_sample + step.samples,
    )


def why_not_push(push: ToldPush, noun: str) -> str:
    """Why a step can't tell this of a `noun`, an update or a part; "" where it can."""
    if push.verdict not in _VERDICTS or not (0 <= push.weight <= 1 and math.isfinite(push.weight)):
        return f"it tells of {noun} that was {push.verdict[:20]!r} with the weight {push.weight}"
    return why_not_reason(push.reason)


def why_not_reason(reason: str) -> str:
    """Why this is too long for a reason; "" where it isn't."""
    if len(reason) > MAX_REASON_CHARACTERS:
        return f"a reason in it has more than {MAX_REASON_CHARACTERS} characters"
    return ""
