"""What a worker has measured counts in its later generations too."""

from peerloom.v1.trainer_pb2 import MeasuredLink
from peerloom.worker.measuring.sync_measuring import NodeMeasures


def test_ways_are_told_by_the_ranks_of_now() -> None:
    measures = NodeMeasures()
    links = [MeasuredLink(rank=1, delay_s=0.1), MeasuredLink(rank=2, delay_s=0.2)]
    measures.note_ways(links, ("ada", "bob", "cid"))
    found = measures.ways(("cid", "dan", "ada"), 2)
    assert [(one.rank, one.delay_s) for one in found] == [(0, 0.2)], "bob is gone, and dan was never measured"
    assert [one.rank for one in links] == [1, 2]
    assert NodeMeasures().ways(("ada", "bob"), 0) == []
