"""When a second node is asked because the first is late: a pure rule, and the budget that bounds it.

After Dean and Barroso, "The Tail at Scale" (2013): a second request sent once the first is later than
nearly all others costs a few per cent of load and cuts the tail.
"""

from collections.abc import Sequence

SHORTEST_S = 0.02
BUDGET = 0.1  # of all requests
SHORTEST_SILENCE_S = 1.0
_ENOUGH = 8
_LATE_QUANTILE = 0.95


def hedge_after_s(past_s: Sequence[float], estimate_s: float) -> float:
    """Seconds after which an answer is late: 1.5 times the past 95th percentile, or 3 times the estimate."""
    if len(past_s) < _ENOUGH:
        return max(SHORTEST_S, 3 * estimate_s)
    ordered = sorted(past_s)
    return max(SHORTEST_S, 1.5 * ordered[int(_LATE_QUANTILE * (len(ordered) - 1))])


def may_hedge(requests: int, hedges: int) -> bool:
    """Whether one more second request keeps to the budget; the first one is free."""
    return hedges < 1 + BUDGET * requests


def silent_after_s(late_s: float) -> float:
    """Seconds beyond being late after which a node counts as silent: another is asked whatever the budget."""
    return max(SHORTEST_SILENCE_S, 10 * late_s)
