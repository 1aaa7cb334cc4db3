"""What ranks tell each other of their links, and what they make of it."""

import math

import pytest

from peerloom.worker.measuring.rate_news import RateNews, agreed, parsed
from peerloom.worker.measuring.together_probe import FASTEST_BITS_PER_S
from peerloom.worker.mesh.pacing import LinkRates

NONE = LinkRates()


def news(*links: LinkRates, together: float = 0.0) -> RateNews:
    return RateNews(False, 1, together, links)


def test_what_is_told_is_understood() -> None:
    told = RateNews(True, 300, 47.5e6, [LinkRates(48e6, 47e6), NONE])
    assert parsed(told.packed()) == told
    assert len(told.packed()) == len(news(NONE, NONE).packed()), "all ranks' are as long"


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0, 0.0])
def test_what_no_link_carries_counts_as_not_known(rate: float) -> None:
    told = parsed(RateNews(False, 0, rate, [LinkRates(rate, 5.0), LinkRates(5.0, rate)]).packed())
    assert told == RateNews(False, 1, 0.0, [LinkRates(0.0, 5.0), LinkRates(5.0, 0.0)])


def test_no_link_is_believed_to_be_as_fast_as_it_is_said_to_be() -> None:
    told = parsed(news(LinkRates(1e13, 5.0)).packed())
    assert list(told.links) == [LinkRates(FASTEST_BITS_PER_S, 5.0)]


def test_the_most_that_any_way_shows_counts() -> None:
    """The first two ranks have measured ways, and see the third's link from their ends."""
    told = [
        news(LinkRates(30.0, 20.0), LinkRates(25.0, 15.0), LinkRates(9.0, 8.0)),
        news(NONE, LinkRates(40.0, 10.0), LinkRates(7.0, 9.0)),
        news(NONE, NONE, NONE),
    ]
    assert agreed(told) == [LinkRates(30.0, 20.0), LinkRates(40.0, 15.0), LinkRates(9.0, 9.0)]


def test_what_came_to_all_at_once_was_sent_by_all() -> None:
    """The first link brought 50, and sent parts of the 40 and 45 that the others brought: so 40 at least."""
    told = [news(NONE, NONE, NONE, together=rate) for rate in (50.0, 40.0, 45.0)]
    assert agreed(told) == [LinkRates(40.0, 50.0), LinkRates(45.0, 40.0), LinkRates(40.0, 45.0)]


def test_who_knows_tells_who_does_not() -> None:
    known = LinkRates(3.0, 4.0)
    assert agreed([news(known, known, NONE), news(NONE, NONE, NONE), news(known, NONE, NONE)]) == [
        known,
        known,
        NONE,
    ]
