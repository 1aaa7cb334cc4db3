"""Everybody in turn."""

import numpy as np

from peerloom.services.selector.policies.interface import Candidates, ScoreTerm, Selection, SelectionRequest


class RoundRobinPolicy:
    """Whoever was chosen longest ago comes first; who never was, in the order of first meeting."""

    name = "round-robin"
    description = "Takes whoever was chosen longest ago, whatever is believed of them."
    source = "The oldest of schedulers; e.g. L. Kleinrock, Analysis of a time-shared processor, 1964."

    def select(
        self, candidates: Candidates, request: SelectionRequest, rng: np.random.Generator
    ) -> Selection:
        """No chance in it: the columns hold whose turn it is."""
        asked = candidates.known.asked
        count = min(request.budget, len(asked))
        edge = np.partition(asked, count - 1)[count - 1] if count else -1.0
        # Rows break ties, so of those at the edge the first ones are taken.
        before = np.flatnonzero(asked < edge)
        near = np.concatenate([before, np.flatnonzero(asked == edge)[: count - len(before)]])
        indices = near[np.argsort(asked[near], kind="stable")]
        return Selection(indices, [_reason(value) for value in asked[indices].tolist()], -asked)

    def explain(self, candidates: Candidates, request: SelectionRequest, index: int) -> list[ScoreTerm]:
        """Its place in the queue."""
        asked = candidates.known.asked
        ahead = int(np.count_nonzero(asked < asked[index]) + np.count_nonzero(asked[:index] == asked[index]))
        return [ScoreTerm("turn", ahead + 1.0, "place", _reason(float(asked[index])))]


def _reason(asked: float) -> str:
    return "it is its turn: " + (
        "never chosen yet" if asked < 0 else f"last chosen in selection {int(asked) + 1:,}"
    )
