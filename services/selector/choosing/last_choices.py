"""Why each node was chosen or not when somebody last asked; in memory, so a restart forgets it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from peerloom.kit.quantity_texts import shown_number
from peerloom.services.selector.catalog.columns import NodeColumns
from peerloom.services.selector.choosing.choice import Choice


@dataclass(frozen=True)
class LastChoice:
    """What became of a node in a selection: when (seconds since 1970), by which policy, and why."""

    time_s: float
    policy: str
    chosen: bool
    reason: str


@dataclass(frozen=True)
class _Last:
    choice: Choice
    policy: str
    time_s: float
    selection: int


class LastChoices:
    """Keeps the last selection whole, and of each node the last one that chose it."""

    def __init__(self) -> None:
        self._chosen: dict[int, tuple[str, LastChoice]] = {}
        self._last: _Last | None = None

    def note(self, choice: Choice, policy: str, time_s: float, columns: NodeColumns) -> None:
        """Keeps a selection that was just made, and has the columns count it."""
        for row, reason in zip(choice.rows, choice.reasons, strict=True):
            self._chosen[row] = columns.node_ids[row], LastChoice(time_s, policy, True, reason)
        self._last = _Last(choice, policy, time_s, columns.selections)
        columns.note_asked(np.array(choice.rows, np.intp))

    def of(self, row: int, columns: NodeColumns) -> list[LastChoice]:
        """The last selection, and before it the one that chose the node last, if that was another."""
        node_id, found = self._chosen.get(row, ("", None))
        chosen = found if node_id == columns.node_ids[row] else None  # else the row was another node's
        last = self._last
        if last is None or columns.met_at[row] > last.selection or row in last.choice.rows:
            return [chosen] if chosen else []
        now = LastChoice(last.time_s, last.policy, False, _why_not(last.choice, row))
        return [now, chosen] if chosen else [now]


def _why_not(choice: Choice, row: int) -> str:
    for exclusion, rows in zip(choice.exclusions, choice.excluded_rows, strict=True):
        if _holds(rows, row):
            return f"it was no candidate: {exclusion.reason}"
    if choice.scores is None:
        return f"it was one of {choice.candidates:,} candidates, and others were drawn"
    score = float(choice.scores[int(np.searchsorted(choice.candidate_rows, row))])
    if np.isnan(score):
        return "nothing is known of its work yet, and it wasn't its turn for a trial"
    rank = int(np.count_nonzero(choice.scores > score)) + 1
    text = f"its score {shown_number(score)} was number {rank:,} of {choice.candidates:,} candidates"
    chosen = choice.scores[np.searchsorted(choice.candidate_rows, choice.rows)]
    known = chosen[~np.isnan(chosen)]
    return (
        f"{text}; the chosen have {shown_number(known.min())} to {shown_number(known.max())}"
        if len(known)
        else text
    )


def _holds(rows: npt.NDArray[np.intp], row: int) -> bool:
    place = int(np.searchsorted(rows, row))
    return place < len(rows) and int(rows[place]) == row
