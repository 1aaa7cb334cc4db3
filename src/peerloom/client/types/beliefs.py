"""What the selector believes of the nodes, and why."""

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from peerloom.client.types.shown import ShownInNotebooks
from peerloom.kit.limits import LIE_PRICE

EvidenceKind = Literal[
    "transfer",
    "training",
    "unfinished",
    "session_ended",
    "interruption",
    "lie",
    "wrong_answer",
    "unknown",
]


@dataclass(frozen=True)
class BeliefWeights:
    """Weights and caps of the thesis's formula; `delay` is taken off for each second."""

    score_old: float
    transmission: float
    train: float
    delay: float
    time_score_cap: float


@dataclass(frozen=True)
class BeliefTerms:
    """Every term of one update of a belief; `str()` writes the formulas (1) to (4) out in figures.

    After proven `lies` the belief is what (4) gives or -lie_price * lies, whatever is less.

    Delay and online times are in seconds; `ended_online_log` is the sum of ln(length + 1) over the sessions
    that have ended.
    """

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
    weights: BeliefWeights
    lies: int = 0
    lie_price: ClassVar[float] = LIE_PRICE

    def __str__(self) -> str:
        w = self.weights
        printed = self.score_new + self.time_score - self.score_reduce
        lied = f"\nbelief = min({printed:g}, -{self.lie_price:g}*{self.lies})" if self.lies else ""
        return (
            f"score_new = {w.score_old:g}*{self.score_old:g} + {w.transmission:g}*{self.transmissions}"
            f" + {w.train:g}*{self.trainings} - {w.delay:g}*{self.delay_s:g} = {self.score_new:g}\n"
            f"time_score = min({w.time_score_cap:g}, {self.ended_online_log:g}"
            f" + ln({self.open_online_s:g} + 1)) = {self.time_score:g}\n"
            f"score_reduce = {self.interruptions} + {self.unfinished} - {self.time_score:g}"
            f" = {self.score_reduce:g}\n"
            f"belief = {self.score_new:g} + {self.time_score:g} - {self.score_reduce:g}"
            f" = {printed:g}{lied}"
        )


@dataclass(frozen=True)
class Evidence:
    """A fact that moved a belief. Delay and online time are in seconds, None where they don't apply.

    `reporter` is the owner, the trainer or, without a door, the host that told of it; None: the registry did.
    """

    id: str
    node_id: str
    kind: EvidenceKind
    delay_s: float | None
    online_s: float | None
    transfer_bytes: int | None
    job_id: str | None
    detail: str
    time: datetime | None
    reporter: str | None = None


@dataclass(frozen=True)
class Belief(ShownInNotebooks):
    """What the selector believes of a node: 0 with no terms before any evidence."""

    node_id: str
    name: str
    belief: float
    terms: BeliefTerms | None
    updates: int
    update_time: datetime | None
    evidence: Evidence | None

    def __str__(self) -> str:
        return f"{self.name}: {self.belief:.4f} after {self.updates} updates"


@dataclass(frozen=True)
class ScoreTerm:
    """One term of the score that a policy gives a node, and the evidence behind it."""

    name: str
    value: float
    unit: str
    evidence: str


@dataclass(frozen=True)
class PastChoice:
    """What became of a node in one selection, and why."""

    time: datetime | None
    policy: str
    chosen: bool
    reason: str


@dataclass(frozen=True)
class ExplainedBelief:
    """A belief, the terms of a policy's score, and the last selections: newest first, at most two."""

    belief: Belief
    policy: str
    score_terms: list[ScoreTerm]
    choices: list[PastChoice]


@dataclass(frozen=True)
class Policy(ShownInNotebooks):
    """A way to choose nodes, and where it is from."""

    name: str
    description: str
    source: str
    is_default: bool

    def __str__(self) -> str:
        return f"{self.name}{' (default)' if self.is_default else ''}: {self.description}"
