"""What a worker has measured counts in its later generations too."""

import pytest

from peerloom.kit.sync_grammar import parse_sync
from peerloom.v1.trainer_pb2 import MeasuredLink
from peerloom.worker.measuring.node_measures import LASTING_S, NodeMeasures
from peerloom.worker.measuring.sync_measuring import times_layers
from peerloom.worker.mesh.pacing import LinkRates


def test_ways_are_told_by_the_ranks_of_now() -> None:
    measures = NodeMeasures()
    links = [MeasuredLink(rank=1, delay_s=0.1), MeasuredLink(rank=2, delay_s=0.2)]
    measures.note_ways(links, ("ada", "bob", "cid"))
    found = measures.ways(("cid", "dan", "ada"), 2)
    assert [(one.rank, one.delay_s) for one in found] == [(0, 0.2)], "bob is gone, and dan was never measured"
    assert [one.rank for one in links] == [1, 2]
    assert NodeMeasures().ways(("ada", "bob"), 0) == []


def test_what_links_carry_is_known_by_node_and_for_some_minutes() -> None:
    measures, known = NodeMeasures(), LinkRates(5.0, 6.0)
    measures.note_rates(("ada", "bob"), (known, LinkRates(5.0, 0.0)), 10.0)
    assert measures.rates(("cid", "ada", "bob"), 11.0) == [LinkRates(), known, LinkRates()]
    assert measures.rates(("ada",), 9.9 + LASTING_S) == [known]
    assert measures.rates(("ada",), 10.0 + LASTING_S) == [LinkRates()], "others may use it by now"


@pytest.mark.parametrize(
    ("method", "again"),
    [
        ("wfbp-a2a", True),
        ("period=16", True),
        ("topology=direct,codec=int8", False),
        ("schedule=cut:131072,topology=direct", False),
    ],
)
def test_layers_are_timed_again_only_where_that_changes_no_step(method: str, again: bool) -> None:
    """Passes of a cut overlap with sums, but not beside a clock, and its first steps judge a new way."""
    assert times_layers(parse_sync("sync", method), has_layers=True) is again
    assert times_layers(parse_sync("sync", method), has_layers=False)
