"""Which nodes may be chosen, which not and why, and which a policy then chooses. Reads columns only."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peerloom.kit.quantity_texts import plural
from peerloom.services.selector.belief.lies import BARRED_FROM, barred, barred_for_s, barred_with_owner
from peerloom.services.selector.belief.track import HALF_LIFE_S
from peerloom.services.selector.catalog.columns import FREE, NodeColumns
from peerloom.services.selector.policies.interface import Candidates, Policy, ScoreTerm, SelectionRequest
from peerloom.services.selector.policies.past import Past
from peerloom.v1.registry_pb2 import (
    NODE_STATE_DEAD,
    NODE_STATE_LEFT,
    NODE_STATE_SUSPECT,
    NODE_STATE_UNSPECIFIED,
)

EXAMPLES = 3
OUTRANKED_EXAMPLES = 10
MOST_RANKED = 10_000  # of more candidates finding the best that weren't chosen would take a millisecond
BUSY_HORIZONS = 2.0  # so many times its horizon a job is taken to hold its nodes, unless they tell of its end
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

_STATES = {
    NODE_STATE_UNSPECIFIED: "unknown to the registry that is followed now",
    NODE_STATE_SUSPECT: "suspected: its heartbeats are late",
    NODE_STATE_DEAD: "dead: its last session ended without notice",
    NODE_STATE_LEFT: "left with notice",
}


@dataclass(frozen=True)
class Exclusion:
    """Nodes left out for one reason: how many, and the rows of the first few."""

    reason: str
    count: int
    examples: list[int]


@dataclass(frozen=True)
class Choice:
    """The rows chosen, best first, each with its reason; and what they were chosen from.

    `excluded_rows` belong to `exclusions`; `candidate_rows` are the candidates' rows, `scores` how the
    policy ranked them (None: it gives no scores).
    """

    rows: list[int]
    reasons: list[str]
    candidates: int
    exclusions: list[Exclusion]
    excluded_rows: list[npt.NDArray[np.intp]]
    candidate_rows: npt.NDArray[np.intp]
    scores: npt.NDArray[np.float64] | None

    def outranked(self) -> Exclusion | None:
        """The candidates that weren't chosen, the best of them named where that is quickly found."""
        count = self.candidates - len(self.rows)
        if not count:
            return None
        if self.scores is None:
            return Exclusion("others were drawn", count, [])
        return Exclusion("others ranked higher", count, self._best_left() if count <= MOST_RANKED else [])

    def _best_left(self) -> list[int]:
        assert self.scores is not None, "asked only where there are some"
        left = ~np.isin(self.candidate_rows, self.rows)
        rows, scores = self.candidate_rows[left], self.scores[left]
        best: list[int] = rows[np.argsort(-scores, kind="stable")[:OUTRANKED_EXAMPLES]].tolist()
        return best


def choose(
    columns: NodeColumns,
    request: SelectionRequest,
    policy: Policy,
    rng: np.random.Generator,
    *,
    now_s: float = 0.0,
    half_life_s: float = HALF_LIFE_S,
) -> Choice:
    """Ranks the candidates by the policy and takes at most the request's budget.

    `now_s` (seconds since 1970) is what evidence has faded to and what open sessions last until.
    """
    mask, exclusions, excluded_rows = eligible(columns, request, now_s, half_life_s)
    candidates = candidates_of(columns, np.flatnonzero(mask), now_s, half_life_s)
    rows = candidates.known.rows
    selection = policy.select(candidates, request, rng)
    assert len(selection.indices) <= request.budget, f"{policy.name} chose more than it may"
    chosen: list[int] = rows[selection.indices].tolist()
    return Choice(chosen, selection.reasons, len(rows), exclusions, excluded_rows, rows, selection.scores)


def candidates_of(
    columns: NodeColumns, rows: npt.NDArray[np.intp], now_s: float, half_life_s: float
) -> Candidates:
    """These rows as a policy sees them."""
    past = Past(columns, rows, now_s, half_life_s)
    return Candidates(columns.belief[rows], columns.slots[rows], past)


def eligible(
    columns: NodeColumns, request: SelectionRequest, now_s: float, half_life_s: float
) -> tuple[Mask, list[Exclusion], list[Rows]]:
    """Which nodes may be chosen, and which not; a node unfit for several reasons counts for the first."""
    left = columns.state != FREE
    exclusions, excluded_rows = [], []
    for reason, unfit in _tests(columns, request, now_s, half_life_s):
        failed = left & unfit
        count = int(np.count_nonzero(failed))
        if count:
            rows = np.flatnonzero(failed)
            exclusions.append(Exclusion(reason, count, rows[:EXAMPLES].tolist()))
            excluded_rows.append(rows)
            left &= ~unfit
    return left, exclusions, excluded_rows


def _tests(
    columns: NodeColumns, request: SelectionRequest, now_s: float, half_life_s: float
) -> Iterator[tuple[str, Mask]]:
    for state, reason in _STATES.items():
        yield reason, columns.state == state
    if columns.number("lies").any():
        own = barred(columns.number("lies"), columns.number("at_s"), now_s, half_life_s)
        yield "it is a proven liar", own
        yield "other nodes of its owner are proven liars", barred_with_owner(own, columns.owner)
    yield "draining: takes no new work", columns.draining
    if request.excluded:
        yield "excluded by the request", _among(columns, request.excluded)
    if request.min_slots:
        yield f"lends fewer than {plural(request.min_slots, 'slot')}", columns.slots < request.min_slots
    if request.accelerator_kind:
        has_kind = columns.accelerators.has(request.accelerator_kind)
        yield f"has no accelerator of kind {request.accelerator_kind!r}", ~has_kind
    for key, value in sorted(request.labels.items()):
        yield f"doesn't carry the label {key}={value}", ~columns.labels.has((key, value))


def lies_term(past: Past, index: int) -> list[ScoreTerm]:
    """What a candidate's proven lies mean for every policy; nothing where there are none."""
    lies = float(past.record.lies[index])
    if not lies:
        return []
    days = barred_for_s(lies, past.half_life_s) / 86_400
    until = f"no policy chooses it for another {days:.1f} days" if days else "they keep it from no work now"
    return [
        ScoreTerm("lies", lies, "proven lies, fading", f"{until}; from {BARRED_FROM:g} on a node is left out")
    ]


def _among(columns: NodeColumns, nodes: frozenset[str]) -> Mask:
    mask = np.zeros(len(columns), np.bool_)
    # A node that the catalog doesn't know wouldn't be chosen anyway.
    mask[[row for row in map(columns.find, nodes) if row is not None]] = True
    return mask
