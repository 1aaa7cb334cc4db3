"""How far reports may move a belief. Pure; the formula itself (formula.py) knows nothing of it.

One fact: of a transfer's delay at most COUNTED_DELAY_S enter the formula's mean. Longer ones are stored and
shown as they were, and the policy survival, which divides by the bytes, goes by them; here a minute costs 60,
far more than a node can earn.

One reporter in a time: so many facts about one node count in an hour. What is over is acknowledged and
forgotten, since a reporter that kept it would only hand it over again. With the printed weights a fact moves
the belief by at most 1, besides its delay, and score_old carries 0.3 of that along, 0.3 of which again:
1 / (1 - 0.3) in all. So a reporter moves a belief, in one report or in many, by at most

    (facts in the hour + COUNTED_DELAY_S) / (1 - 0.3).

A proven lie moves it further; who may prove one is in lies.py.
"""

from collections.abc import Callable, Sequence

from peerloom.kit.allowance import Rate
from peerloom.services.selector.belief.evidence_report import Evidence

COUNTED_DELAY_S = 60.0
HOUR_S = 3600.0


def counted_delay_s(delay_s: float) -> float:
    """What of a transfer's delay (seconds) enters the formula."""
    return min(delay_s, COUNTED_DELAY_S)


def reporter_rate(facts_an_hour: int) -> Rate:
    """How often one reporter's facts about one node count: half of it at once, the rest over the hour."""
    return Rate(facts_an_hour / 2, facts_an_hour / 2 / HOUR_S)


def counting(evidence: Sequence[Evidence], may: Callable[[str], bool]) -> list[Evidence]:
    """The facts of a report that count; `may` takes one from its reporter's allowance for a node id."""
    return [one for one in evidence if may(one.node_id)]
