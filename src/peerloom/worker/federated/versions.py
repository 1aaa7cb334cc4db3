"""Parameters with a version, as a state machine: what becomes of pushes, and which version there is then.

A push is an update with the version that it began with. To judge pushes and to write what they bring is one
step, `pushed`: between both there is no state that anybody could see. Whoever holds the same versions comes
to the same verdicts. An update counts once, also when its client doesn't hear of it and pushes it again.

The weight of an older update falls as the root of its age grows, as in FedAsync (Xie, Koyejo, Gupta,
arXiv 1903.03934).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from peerloom.kit.federated_rounds import BOUND, REFUSE, FederatedRounds

ACCEPTED, MERGED, REFUSED = "accepted", "merged", "refused"
SOUND, OTHER_SHAPES, NOT_FINITE = 0, 1, 2
_FLAWS = {
    OTHER_SHAPES: "its shapes are not those of the parameters",
    NOT_FINITE: "not all of its values are finite",
}


@dataclass(frozen=True)
class Push:
    """A client's update: the `version` that it began with, and how many `samples` it was trained on.

    `likeness`, -1 to 1, is the cosine between it and what has been changed since that version; `flaw` is what
    `flaw_of` found.
    """

    client: int
    version: int
    samples: int
    likeness: float = 1.0
    flaw: int = SOUND


@dataclass(frozen=True)
class PushVerdict:
    """What becomes of a push; `weight` is its part in comparison with others, 0 when it is refused."""

    word: str
    weight: float
    reason: str


@dataclass(frozen=True)
class ClientTotal:
    """What became of a client's updates; `counted` is the version that the last of them began with that
    counted, -1: none did."""

    counted: int = -1
    updates: int = 0
    samples: int = 0
    refused_updates: int = 0
    refused_samples: int = 0


@dataclass(frozen=True)
class Versions:
    """The `newest` version, from 0, and by client what has come of its pushes."""

    newest: int = 0
    totals: Mapping[int, ClientTotal] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Samples of all updates that counted."""
        return sum(total.samples for total in self.totals.values())


def judged(versions: Versions, push: Push, rounds: FederatedRounds) -> PushVerdict:
    """What becomes of a push now."""
    newest, age = versions.newest, versions.newest - push.version
    counted = versions.totals.get(push.client, ClientTotal()).counted
    why_not = ""
    if push.flaw:
        why_not = _FLAWS[push.flaw]
    elif age < 0:
        why_not = f"it began with version {push.version}, and the newest is {newest}"
    elif push.version <= counted:
        why_not = f"an update of this client from version {counted} has counted already"
    elif age and rounds.stale == REFUSE:
        why_not = f"it began with version {push.version}, and the newest is {newest}: pull, and train again"
    elif age > rounds.bound and rounds.stale == BOUND:
        why_not = f"it is {age} versions old, and {rounds.bound} are allowed"
    elif age and rounds.stale != BOUND and push.likeness <= 0:
        why_not = f"it goes against what has changed since: their cosine is {push.likeness:.2f}"
    if why_not:
        return PushVerdict(REFUSED, 0.0, why_not)
    if not age:
        return PushVerdict(ACCEPTED, float(push.samples), f"it began with the newest version, {newest}")
    if rounds.stale == BOUND:
        return PushVerdict(MERGED, float(push.samples), f"it is {age} of {rounds.bound} versions old")
    factor = push.likeness / math.sqrt(1 + age)
    reason = f"it is {age} versions old, with a cosine of {push.likeness:.2f}: counts {factor:.2f} times"
    return PushVerdict(MERGED, push.samples * factor, reason)


def pushed(
    versions: Versions, pushes: Sequence[Push], rounds: FederatedRounds
) -> tuple[Versions, list[PushVerdict]]:
    """The versions after pushes that are judged together, at most one a client; and the verdicts, in turn.

    Those that count make one new version together; if none does, the newest stays.
    """
    verdicts = [judged(versions, push, rounds) for push in pushes]
    totals = dict(versions.totals)
    for push, verdict in zip(pushes, verdicts, strict=True):
        totals[push.client] = _entered(totals.get(push.client, ClientTotal()), push, verdict)
    is_newer = any(verdict.word != REFUSED for verdict in verdicts)
    return Versions(versions.newest + is_newer, totals), verdicts


def parts(verdicts: Sequence[PushVerdict]) -> list[float]:
    """Each push's part of the mean change; they add up to 1, unless all are 0."""
    whole = sum(verdict.weight for verdict in verdicts)
    return [verdict.weight / whole if whole else 0.0 for verdict in verdicts]


def flaw_of(update: Sequence[Tensor], parameters: Sequence[Tensor]) -> int:
    """What is wrong with an update for these parameters, or SOUND."""
    if [each.shape for each in update] != [each.shape for each in parameters]:
        return OTHER_SHAPES
    return SOUND if all(bool(torch.isfinite(each).all()) for each in update) else NOT_FINITE


def likeness_of(update: Sequence[Tensor], moved: Sequence[Tensor]) -> float:
    """The cosine between an update and what was changed since it began; 1 where nothing was."""
    products = [0.0, 0.0, 0.0]
    for own, other in zip(update, moved, strict=True):
        a, b = own.double().flatten(), other.double().flatten()
        for i, (left, right) in enumerate(((a, b), (a, a), (b, b))):
            products[i] += float(left @ right)
    lengths = math.sqrt(products[1] * products[2])
    return products[0] / lengths if lengths > 0 and math.isfinite(lengths) else 1.0


class KeptVersions:
    """The versions of a job as a part of its state, which newcomers get and checkpoints have."""

    def __init__(self) -> None:
        self.now = Versions()

    def state_dict(self) -> dict[str, Any]:
        """Whole numbers by the client's."""
        totals = {str(client): list(vars(total).values()) for client, total in self.now.totals.items()}
        return {"newest": self.now.newest, "totals": totals}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Takes over another worker's."""
        totals = {int(client): ClientTotal(*map(int, each)) for client, each in state_dict["totals"].items()}
        self.now = Versions(int(state_dict["newest"]), totals)


def _entered(total: ClientTotal, push: Push, verdict: PushVerdict) -> ClientTotal:
    if verdict.word == REFUSED:
        return replace(
            total,
            refused_updates=total.refused_updates + 1,
            refused_samples=total.refused_samples + push.samples,
        )
    return replace(
        total, counted=push.version, updates=total.updates + 1, samples=total.samples + push.samples
    )
