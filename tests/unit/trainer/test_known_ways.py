"""Ways that were measured once count in other generations of the same nodes, in whatever order these come."""

from peerloom.services.trainer.generations.known_ways import LASTING_S, KnownWays
from peerloom.v1.trainer_pb2 import MeasuredLink, WorkerMeasured

NODES = ("ada", "bob", "cid")


def link(rank: int, sent: float, received: float) -> MeasuredLink:
    return MeasuredLink(
        rank=rank, delay_s=0.1, sent_bits_per_s=sent, received_bits_per_s=received, message_s=0.5
    )


def told(*links: MeasuredLink, together: float = 0) -> WorkerMeasured:
    return WorkerMeasured(links=links, together_bits_per_s=together)


def known(now_s: float = 10.0) -> KnownWays:
    """Of three ranks the lower one of each two has measured."""
    ways = KnownWays()
    ways.note(NODES, 0, told(link(1, 12, 21), link(2, 13, 31), together=5), now_s)
    ways.note(NODES, 1, told(link(2, 23, 32), together=6), now_s)
    ways.note(NODES, 2, told(together=7), now_s)
    return ways


def test_what_covers_all_pairs_covers_them_in_any_order_and_fewer_of_them() -> None:
    ways = known()
    assert ways.cover(NODES, 11.0)
    assert ways.cover(("cid", "ada", "bob"), 11.0)
    assert ways.cover(("bob", "ada"), 11.0)
    assert not ways.cover((*NODES, "dan"), 11.0)
    assert not ways.cover(("ada", "ada"), 11.0), "two workers of a node are another way"
    assert KnownWays().cover(("ada",), 0.0), "who is alone measures nothing"


def test_ways_are_measured_again_after_a_while() -> None:
    ways = known(10.0)
    assert ways.cover(NODES, 9.0 + LASTING_S)
    assert not ways.cover(NODES, 10.0 + LASTING_S)
    ways.note(NODES, 0, told(link(1, 1, 1)), 100.0)
    assert not ways.cover(NODES, 10.0 + LASTING_S), "the others are as old as before"
    assert ways.cover(("ada", "bob"), 10.0 + LASTING_S)


def test_what_nobody_told_of_is_filled_in_as_the_lower_rank_sees_it() -> None:
    said = [
        WorkerMeasured(generation=5),
        WorkerMeasured(generation=5, links=[link(2, 7, 8)], together_bits_per_s=9),
        WorkerMeasured(),
    ]
    filled = known().filled(said, ("bob", "cid", "ada"))
    assert [(one.rank, one.sent_bits_per_s, one.received_bits_per_s) for one in filled[0].links] == [
        (1, 23, 32),
        (2, 21, 12),
    ]
    assert list(filled[1].links) == [link(2, 7, 8)], "what a worker told of counts"
    assert (filled[0].links[0].delay_s, filled[0].links[0].message_s) == (0.1, 0.5)
    assert [one.generation for one in filled] == [5, 5, 0]
    assert [one.together_bits_per_s for one in filled] == [6, 9, 5]
    assert not said[0].links


def test_ranks_that_nobody_has_are_ignored() -> None:
    ways = KnownWays()
    ways.note(("ada", "bob"), 0, told(link(0, 1, 1), link(7, 1, 1)), 1.0)
    assert not ways.cover(("ada", "bob"), 1.0)


def test_ways_that_these_ranks_would_not_measure_are_not_filled_in() -> None:
    """Of 12 ranks each meets eight others: what is known of the rest may be as old as the job."""
    ways, nodes = KnownWays(), [f"node-{rank}" for rank in range(12)]
    for rank in range(12):
        ways.note(nodes, rank, told(*(link(other, 1, 1) for other in range(rank + 1, 12))), 1.0)
    filled = ways.filled([WorkerMeasured() for _ in nodes], nodes)
    assert sum(len(each.links) for each in filled) == 12 * 8 / 2
